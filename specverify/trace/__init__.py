"""Records of runs: written and read as JSON lines, and compared in pipeline order."""

from specverify.trace.compare import Comparison, Component, compare, compare_all
from specverify.trace.files import TraceFile, TraceWriter, read_traces, write_traces

__all__ = [
    "Comparison",
    "Component",
    "TraceFile",
    "TraceWriter",
    "compare",
    "compare_all",
    "read_traces",
    "write_traces",
]
