"""`bench --tokenizers`: how fast each tokenizer is on the same bytes, and whether all give the same ids."""
