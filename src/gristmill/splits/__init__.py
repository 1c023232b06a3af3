"""Assignment of document groups to train, validation and test, and search for spans that two splits share."""
