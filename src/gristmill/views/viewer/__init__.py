"""`gristmill view`: browse a dataset in a local web page."""
