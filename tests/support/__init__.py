"""What tests share: made-up code and tokenizers, servers on loopback, a browser, readers of other projects."""
