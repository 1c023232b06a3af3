"""README.md and croissant.json of a dataset, from its manifest."""
