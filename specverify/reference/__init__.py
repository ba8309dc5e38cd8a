"""The reference engine: small enough to read, correct enough to hold others against."""
