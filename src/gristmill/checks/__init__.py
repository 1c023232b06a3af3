"""Is a dataset what its manifest says? With readers and algorithms of its own."""
