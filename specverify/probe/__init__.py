"""Tiny checkpoint pairs whose exact law is known, and the float64 oracle that knows it."""
