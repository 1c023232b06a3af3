"""User-facing output: single rows, the report, the viewer, and curves."""
