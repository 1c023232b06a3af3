"""Read a finished dataset: rows by number, text joined from windows, batches for PyTorch.

dataset         open_dataset(): the splits of a folder in any format; Rows reads rows by number or in order
row_windows     a row -> its windows, with or without ids
stretches       windows of a file -> its tokens, each once; gaps are kept
foreign         rows that gristmill did not build: read them, or convert them to a dataset folder
frame, items    special tokens and padding around a window; a row -> tensors
batches         the rows of each epoch and rank, in order
token_edges     the bytes of each token, and whether it starts or ends in a word
masking         the tokens that a masked model must predict; needs no torch, like batches
collators       items -> a batch, masked or causal
torch_split     common parts of torch_windows (access by number) and torch_stream (streaming)
"""
