"""Planted bugs: verify functions and engine parts, one small override each."""
