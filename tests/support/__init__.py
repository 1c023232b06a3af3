"""Helpers that tests share: generated code, tokenizers, loopback servers, a browser and readers of other libraries."""
