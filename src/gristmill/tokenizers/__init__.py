"""Convert text to token ids: tokenizer definitions, the CPU and GPU engines, the Hub and the bundled vocabulary."""
