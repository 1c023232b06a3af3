"""Experiments: benchmarks, training, comparison of datasets, vocabularies."""
