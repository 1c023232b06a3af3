"""Dataset cards: README.md and croissant.json, generated from the manifest."""
