"""`bench --tokenizers`: measure the speed of tokenizers on the same bytes, and compare their ids."""
