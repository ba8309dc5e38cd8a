"""The conformance suite: pytest --pyargs specverify.properties --engine MODULE:FACTORY."""
