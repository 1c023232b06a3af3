"""A finished dataset, read: rows by number, text joined from windows, batches for PyTorch.

dataset         open_dataset(): the splits of a folder, whatever the format; Rows gives rows by number or in order
row_windows     a row -> its windows, with or without ids
stretches       windows of a file -> its tokens, each once; gaps stay gaps
foreign         rows that gristmill did not build: read them, or make them a dataset folder
frame, items    how a window lies among special tokens and padding; a row -> tensors
batches         which rows an epoch shows, in which order, for one rank of several
token_edges     what each token spells: bytes, and whether a word goes on at its edges
masking         which tokens are hidden from a masked model; needs no torch, like batches
collators       items -> a batch, masked or causal
torch_split     what both ways of feeding share; torch_windows: by number; torch_stream: in a stream
"""
