"""`python -m gristmill` is the `gristmill` command."""

from gristmill.cli.main import main

main()
