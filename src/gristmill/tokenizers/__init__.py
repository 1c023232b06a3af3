"""Text to ids: tokenizer.json, gigatoken, Hugging Face tokenizers, the Hub, the bundled vocabulary."""
