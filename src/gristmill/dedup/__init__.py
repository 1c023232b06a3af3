"""Documents against each other: signatures and clusters of near-duplicates."""
