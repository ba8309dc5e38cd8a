"""The checks: one claim each, declared once, one file per family."""
