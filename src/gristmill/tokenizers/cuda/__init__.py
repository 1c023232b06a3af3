"""Text to ids on an NVIDIA GPU."""
