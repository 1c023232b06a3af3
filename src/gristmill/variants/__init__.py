"""Other forms of a source text: renamed, commented, laid out, infilled, with noise, rewritten."""
