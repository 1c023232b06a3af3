"""Ids to windows: cutting, sampling, weights, packing."""
