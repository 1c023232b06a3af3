"""Cleaning of single documents: rules, notebooks, secrets, licenses and control tokens."""
