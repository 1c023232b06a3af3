"""open_dataset(): rows by number, text joined from windows, PyTorch datasets and loaders."""
