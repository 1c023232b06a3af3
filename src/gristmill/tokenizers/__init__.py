"""Convert text to token ids: tokenizer definitions, CPU and GPU engines, the Hub and the bundled vocabulary."""
