"""Run the `gristmill` command with `python -m gristmill`."""

from gristmill.cli.main import main

main()
