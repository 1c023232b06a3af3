"""Windows to bytes and back: each format has its writer beside its reader."""
