"""python -m specverify.cli, for environments where scripts are not on the path."""

from specverify.cli import main

main()
