"""Variants of a source text: renamed, with other comments or layout, infilled, with noise, or rewritten by a model."""
