// All kernels as one module, compiled for one kind of tokenizer with these macros:
//   ID_BITS 16 or 32 · IGNORES_CASE 0 or 1 · FAMILY_GPT2 [DIGITS_APART] or FAMILY_CL100K [DIGITS_IN_THREES]
#include "begin_chunk.cu"
#include "word_starts.cuh"
#ifdef FAMILY_GPT2
#include "word_starts_gpt2.cu"
#else
#include "word_starts_cl100k.cu"
#endif
#include "look_up_words.cu"
#include "look_up_long_words.cu"
#include "merge_words.cu"
#include "join_windows.cu"
#include "apply_exceptions.cu"
#include "emit.cu"
#include "end_chunk.cu"
