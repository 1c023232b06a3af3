"""Groups of documents to train, validation and test; spans that two splits share."""
