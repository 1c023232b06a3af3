"""Tasks over local processes or a Ray cluster."""
