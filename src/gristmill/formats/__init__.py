"""Output formats. Each module has the writer and the reader of one format."""
