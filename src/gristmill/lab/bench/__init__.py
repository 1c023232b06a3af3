"""gristmill bench: compare time, size and quality of several methods of making a dataset."""
