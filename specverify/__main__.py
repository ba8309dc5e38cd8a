"""`python -m specverify`."""

from specverify.cli import main

main()
