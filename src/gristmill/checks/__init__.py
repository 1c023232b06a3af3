"""Verify that a dataset matches its manifest, with readers and algorithms that are mostly independent of the build."""
