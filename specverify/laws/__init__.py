"""Closed forms: logits to laws, residuals, step and sequence laws, the laws of named mistakes."""
