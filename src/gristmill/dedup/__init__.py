"""Exact and near-duplicates among documents: signatures, clusters, similarity."""
