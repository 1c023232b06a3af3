"""Output formats: their writers and readers, and the columns of the rows that they store."""
