"""Exact output laws of third-party programs, by replayed choice points with symbolic randomness."""
