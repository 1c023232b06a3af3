"""The version of gristmill, which every package may name."""

__version__ = "0.1.0"
