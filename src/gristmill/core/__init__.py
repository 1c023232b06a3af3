"""Modules that every package may use: errors, records, columns, names, layout, manifest, files table, progress."""
