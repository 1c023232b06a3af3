"""Make variants of source texts, and rewrite source texts for fill-in-the-middle."""
