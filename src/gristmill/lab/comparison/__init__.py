"""gristmill compare: the same model on each dataset, scored on one frozen test set."""
