"""Variants of a source text: new names, comments, layout, fill-in-the-middle, noise, or rewriting by a model."""
