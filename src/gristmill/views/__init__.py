"""What people look at: a row, the report, the viewer, curves."""
