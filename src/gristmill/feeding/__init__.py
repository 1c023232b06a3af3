"""What feeds a PyTorch training. Only this room and `training` know of torch, and importing gristmill loads neither.

frame        how ids, special tokens and padding lie in a window
order        which rows an epoch shows, and in which order          Order, Draw
batches      the batches of that order, for one rank                Batches
ranks        which rank of how many this process is
items        a stored row -> what a collator takes
split        what rows by number and rows in a stream have in common
windows      rows by number                                         WindowDataset
streams      rows as they come, block by block                      WindowStream
loader       a DataLoader that resumes where it was                 WindowLoader
packing      how batches come from a worker
vocabulary   the bytes of each token, and which are control tokens  Vocabulary
masking      which tokens are hidden, and what stands there         Masking
collating    items -> a batch                                       MaskedCollator, CausalCollator
extra        what is said where torch is not installed
"""
