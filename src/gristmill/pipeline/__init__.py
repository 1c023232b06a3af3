"""The build pipeline. Each step passes records to the next.

The work folder stores the results between the steps, so a killed build can resume.

0. inputs     sources, settings       -> SourceFiles, license declarations, benchmarks
1. prepare    batches of SourceFiles  -> parts with token ids and TokenizedDocuments, made by workers
2. decide     parts                   -> PlacedDocuments and Drops: licenses, duplicates, groups, splits;
              decontaminate cuts shared spans, fim rewrites, windows.draw samples, vary adds variants
3. shape      PlacedDocuments         -> pieces of JSONL data files, and other formats; with --pack, pack runs instead
4. finish     results of all steps    -> files.jsonl, and the manifest with numbers from facts

build runs all steps in one command, separate_steps runs one step per command. Shared modules: context (settings and
folders), keys (names from content digests), parts (files of token ids), cache (results of earlier builds), work_folder.
"""
