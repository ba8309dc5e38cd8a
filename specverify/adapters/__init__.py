"""One file per kind of subject: verify functions, recorded traces, and engines."""
