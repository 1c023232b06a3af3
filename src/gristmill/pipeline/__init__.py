"""The build, in steps that hand records on. Between them everything lies in the work folder, so a build can go on.

1. intake      sources, settings          -> SourceFiles, licence files, benchmarks
2. prepare     batches of SourceFiles     -> parts: ids and TokenizedDocuments, over workers
3. decide      parts                      -> PlacedDocuments and Drops: licences, duplicates, groups, splits;
               decontaminate cuts shared spans, windows.draw samples, vary adds variants
4. shape       PlacedDocuments            -> data files: pieces of JSONL, other formats; pack for rows of several files
5. finish      all of it                  -> files.jsonl and the manifest, with the numbers of facts

build runs them one after the other, by_hand one per command. context, keys, parts, cache and work_folder are what they
share: settings and folders, names by content, files of ids, what earlier builds found out, and the folder itself.
"""
