"""gristmill train: a model trained on a dataset, with curves."""
