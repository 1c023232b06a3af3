"""gristmill tokenizer: train a vocabulary and compare tokenizers."""
