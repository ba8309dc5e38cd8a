"""Tests of trace files, their comparison and their coverage."""
