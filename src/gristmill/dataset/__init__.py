"""Read a finished dataset: rows by index, text joined from windows, batches for PyTorch.

dataset         open_dataset(): the splits of a folder in any format; Rows reads rows by index or one after the other
row_windows     a row -> its windows, with or without ids
token_spans     windows of a file -> spans of its tokens, each token once; gaps between spans remain
foreign         rows that gristmill did not build: read them, or convert them to a dataset folder
frame           special tokens and padding around a window
items           a row -> tensors
batches         the rows of each epoch and rank, in batches; does not need torch
token_edges     the number of bytes of each token, and whether its first and last byte are part of a word
masking         the tokens that a masked model must predict; does not need torch
collators       items -> a batch for a masked or causal model
torch_split     common parts of torch_windows (access by index) and torch_stream (streaming)
"""
