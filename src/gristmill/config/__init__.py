"""Settings with their defaults and limits, command-line options, and loading of a Config from options and TOML."""
