"""One document by itself: rules, notebooks, secrets, licenses."""
