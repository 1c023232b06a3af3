"""Experiments on datasets: benchmarks, training, comparisons and vocabularies."""
