"""Estimate a build before it runs (plan), and explain or compare datasets afterwards (explain, diff)."""
