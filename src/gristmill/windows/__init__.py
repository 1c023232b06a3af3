"""Windows of ids: cutting, sampling, weights, packing."""
