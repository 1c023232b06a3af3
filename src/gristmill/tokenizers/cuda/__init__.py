"""Encode text to token ids on an NVIDIA GPU."""
