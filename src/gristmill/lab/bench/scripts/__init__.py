"""Methods that `gristmill bench` runs as scripts in fresh processes."""
