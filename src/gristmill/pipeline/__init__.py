"""The build, in steps that hand records on. What passes between them lies in the work folder, so a build can go on.

0. intake     sources, settings       -> SourceFiles, what licence files say, benchmarks
1. prepare    batches of SourceFiles  -> parts: ids and TokenizedDocuments, over workers
2. decide     parts                   -> PlacedDocuments and Drops: licences, duplicates, groups, splits;
              decontaminate cuts shared spans, windows.draw samples, vary adds variants
3. shape      PlacedDocuments         -> pieces, which make data files, and other formats; pack: rows of several files
4. finish     all of it               -> files.jsonl and the manifest, with the numbers of facts

build runs them one after the other, by_hand one per command. They share context (settings and folders), keys (names by
content), parts (files of ids), cache (what earlier builds found out) and work_folder.
"""
