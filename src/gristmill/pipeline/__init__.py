"""The build pipeline. Each step passes records to the next.

The work folder stores the results of steps 1 and 3, so that a killed build can resume.

0. `inputs`   checks the settings, finds the source files and reads the license declarations.
1. `prepare`  cleans and tokenizes batches of source files in workers. The results of each batch are stored in a file
              that is called a part.
2. `decide`   reads all parts, and decides which documents are kept: by license, duplicates, groups and splits.
              `decontaminate` cuts shared spans, `fim` rewrites documents for fill-in-the-middle, `windows.draw` samples
              windows, and `vary` adds variants.
3. `shape`    writes JSONL piece by piece. A piece is the rows of consecutive documents. `other_formats` writes all
              other formats. With --pack, `pack` replaces both modules.
4. `finish`   writes files.jsonl, and the manifest with the numbers that `facts` computes.

`build` runs all steps in one command. `separate_steps` runs one step per command, and stores the results of every step.

Several steps use these modules: `context` (settings and folders of a build), `keys` (digests that name results),
`parts` (reading and writing of parts), `cache` (results of earlier builds), `work_folder`.
"""
