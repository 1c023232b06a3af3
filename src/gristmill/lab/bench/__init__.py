"""gristmill bench: time, size and quality of several ways to make a dataset."""
