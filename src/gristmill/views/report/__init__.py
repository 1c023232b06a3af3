"""`gristmill report`: one HTML page about a dataset."""
