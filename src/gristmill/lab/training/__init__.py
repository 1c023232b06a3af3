"""`gristmill train`: train a model on a dataset and plot its loss curves."""
