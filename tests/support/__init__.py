"""Helpers that tests share: generated code and tokenizers, loopback servers, a browser, readers of other libraries."""
