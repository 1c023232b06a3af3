"""Every setting with its default and limit; options and TOML files become a Config."""
