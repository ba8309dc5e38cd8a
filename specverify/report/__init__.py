"""Prints a Report as text, JSON or HTML."""
