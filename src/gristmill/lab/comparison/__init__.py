"""`gristmill compare`: train the same model on each dataset and score all runs on one frozen test set."""
