"""Reading of sources: folders, git, ignore files, tables, clones, remote storage, decoding, languages."""
