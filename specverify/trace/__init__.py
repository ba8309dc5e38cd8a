"""The record of a run: its file format, its comparison in pipeline order, and what it exercised."""
