"""The build pipeline. Each step passes records to the next.

The work folder stores the results between the steps, so a killed build can resume.

0. inputs     sources, settings       -> SourceFiles, license declarations, benchmarks
1. prepare    batches of SourceFiles  -> parts with token ids and TokenizedDocuments, made by workers
2. decide     parts                   -> PlacedDocuments and Drops: licenses, duplicates, groups, splits;
              decontaminate cuts shared spans, windows.draw samples, vary adds variants
3. shape      PlacedDocuments         -> pieces of JSONL data files, and other formats; pack: rows of several files
4. finish     all of the above        -> files.jsonl, and the manifest with numbers from facts

build runs all steps, separate_steps runs one step per command. They share context (settings and folders), keys (names
from content digests), parts (files of token ids), cache (results of earlier builds) and work_folder.
"""
