"""build(): prepare, decide, shape, finish; the work folder and its cache."""
