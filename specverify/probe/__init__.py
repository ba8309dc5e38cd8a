"""Tiny checkpoint pairs whose exact law is known, and the float64 oracle that knows it."""

from specverify.probe.oracle import Oracle, OracleConditional
from specverify.probe.pair import ProbePair, default_probe, load_probe, summary, write_probe

__all__ = ["Oracle", "OracleConditional", "ProbePair", "default_probe", "load_probe", "summary", "write_probe"]
