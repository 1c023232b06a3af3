"""Version of gristmill."""

__version__ = "0.1.0"
