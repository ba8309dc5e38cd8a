"""Measures when speculation pays: one thing varied at a time, closed forms beside every figure, and which k to use."""
