"""Records of runs: written and read as JSON lines, compared in pipeline order, counted for what they exercised."""

from specverify.trace.compare import Comparison, Component, compare, compare_all
from specverify.trace.coverage import coverage
from specverify.trace.files import TraceFile, TraceWriter, read_traces, write_traces

__all__ = [
    "Comparison",
    "Component",
    "TraceFile",
    "TraceWriter",
    "compare",
    "compare_all",
    "coverage",
    "read_traces",
    "write_traces",
]
