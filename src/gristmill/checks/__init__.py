"""Verify that a dataset matches its manifest, with readers and algorithms independent of the build."""
