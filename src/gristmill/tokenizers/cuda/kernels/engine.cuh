// Definitions shared by all kernels: sizes, entries of the word table, and the two structures passed to every kernel.
//
// A chunk of text passes through the kernels in this order, one launch each:
//
//   begin_chunk ─► word_starts ─► look_up_words ─► look_up_long_words ─┐
//   ┌──────────────────────────────────────────────────────────────────┘
//   ├─► merge_words ───────────────────┬─► emit ─► end_chunk
//   └─► merge_windows ─► join_windows ─┘
//
// If the tokenizer has exceptions, apply_exceptions runs between the merges and emit.
//
// A *tile* is 8,192 bytes of the chunk, processed by one block. A *group* is 32 bytes of a tile, processed by one
// thread.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#if ID_BITS == 16
typedef u16 token_t;
#else
typedef u32 token_t;
#endif

constexpr u32 TILE = 8192;
constexpr u32 THREADS = 256;
constexpr u32 GROUP = 32;
constexpr u32 GROUPS = TILE / GROUP;
static_assert(GROUPS == THREADS, "each thread has one group of its tile");

constexpr u32 SHORT = 15;    // maximum length of a word that is its own key in the table
constexpr u32 WINDOW = 64;   // bytes that one warp merges at once; a larger window takes more rounds of merges
constexpr u32 STRIDE = 32;   // distance between consecutive windows of a longer word: windows overlap by half
constexpr u32 STEP = 256;    // bytes that are merged at once if windows cannot be joined
constexpr u32 IN_TILE = 512; // maximum length of a word that one thread looks up
constexpr u32 PROBES = 128;  // slots to search before the table is considered full
constexpr u32 ALL = 0xFFFFFFFFu;
constexpr u32 NOTHING = 0xFFFFFFFFu;

// The ids of one word. Up to INLINE ids are stored here. A longer list is stored in the pool.
//   inline   item[0] = number of ids, item[1…] = the ids          "def" -> {1, 9232}
//   pooled   item[0] = POOLED, word[1] = offset in the pool, word[2] = number of ids, word[3] = 1 if the pool was full
constexpr u32 INLINE = 16 / sizeof(token_t) - 1;
constexpr token_t POOLED = (token_t)~(token_t)0;
union __align__(16) Value {
    token_t item[16 / sizeof(token_t)];
    u32 word[4];
    uint4 all;
};

// One word in the table. An entry has 32 bytes, one sector of memory, so that one access loads both key and ids.
//   short    low = bytes 0-7, inverted, high = bytes 8-14 | length << 56
//   longer   low = hash | 1,            high = IN_TEXT or IN_ARENA << 56 | length << 32 | offset
// A thread claims an entry by a compare-and-swap of its low half. The high half is 0 until the thread writes it.
constexpr u64 IN_TEXT = 0xFF;   // the bytes are in the text of this chunk until merge_words or join_windows copies them
constexpr u64 IN_ARENA = 0xFE;  // the bytes are in the arena, which is cleared together with the table
struct __align__(32) Entry {
    u64 low, high;
    Value value;
};

// Code of a word in the text: two bits of kind and thirty bits of content. The kernel emit derives the ids of the word
// from the code.
constexpr u32 AT_SLOT = 0u << 30;   // content: the slot of the word's entry
constexpr u32 ONE_ID = 1u << 30;    // content: the only id of the word
constexpr u32 TWO_BYTES = 2u << 30; // content: the two bytes of the word, which no merge joins
constexpr u32 NO_IDS = 3u << 30;    // no content: the CPU encodes the document of the word
constexpr u32 KIND = 3u << 30;

struct Window {
    u32 slot, index;
};
struct Join {
    u32 slot, first_window;
};
struct LongWord {
    u32 position, code;
};

// State of the word table, the pool and the arena, which persist from chunk to chunk. If one of them is too full,
// must_clear is set, and all three are cleared before the next chunk.
struct TableState {
    u64 arena_used;
    u32 pool_used, num_words, must_clear, num_clears;
};

// Counters that are zeroed before each chunk.
struct Counters {
    u32 num_short, num_medium, num_windows, num_joins, num_long, next_tile;
};

struct Result {
    u32 num_ids, num_new_words, num_clears;
};

// A word that is one token although the merges do not produce this token. num_bytes is 0 for an empty entry.
struct Exception {
    u32 hash, begin, num_bytes, id;  // begin: offset of its bytes in exception_bytes
};

// GPU memory of a loaded tokenizer: its tables, the word table, and work arrays for one chunk.
struct Engine {
    const u8* classes;      // class of each code point
    const u32* byte_ids;    // id of each byte
    const u32* pair_ids;    // id of each two-byte word, or NOTHING if the word is two tokens
    const uint4* merges;    // left << 21 | right (64 bits), rank, product; hashed by the pair
    Entry* entries;
    u8* arena;
    token_t* pool;
    TableState* state;
    Counters* counters;
    u32* document_mask;     // one bit per byte: a document starts here, or the chunk ends here
    u32* starts;            // one bit per byte: a word starts here, or the chunk ends here
    u32* codes;             // codes of the words, TILE entries for each tile
    u16* words_before;      // for each group, the number of words before it in its tile
    u32* words_per_tile;
    u32* first_documents;   // for each tile, the first document that starts in it or after it
    u64* tile_totals;       // for each tile, the number of its ids, in the form that emit.cu describes
    u32* short_words;       // slots of new entries
    u32* medium_words;
    Window* windows;
    Join* joins;
    LongWord* long_words;
    token_t* window_ids;    // ids of the windows, WINDOW entries for each window
    u64* window_masks;      // for each window, one bit per byte: a token starts here
    const Exception* exceptions;
    const u8* exception_bytes;
    u64 arena_bytes;
    u32 pool_ids, slot_mask, max_words, merges_shift, merges_mask, is_in_order, exceptions_mask;
    u32 longest_exception;  // in bytes
};

struct Chunk {
    const u8* text;         // with readable bytes before and after the text
    const u32* documents;   // start of each document, ascending
    u8* flags;              // in host memory: for each document, 1 if the CPU must encode it
    token_t* ids;
    u32* id_offsets;        // in host memory: for each document, the offset of its ids
    Result* result;         // in host memory
    u32 num_bytes, num_documents, num_tiles;
};

// Reserve the next index of a list to which many threads append. The active threads of a warp reserve together, so they
// must all pass the same counter. (In the tests on a CPU, threads call this one by one.)
__device__ inline u32 next_index(u32* counter) {
#ifdef __CUDACC__
    u32 here = __activemask(), lane = threadIdx.x % 32, leader = __ffs(here) - 1, base = 0;
    if (lane == leader) base = atomicAdd(counter, __popc(here));
    return __shfl_sync(here, base, leader) + __popc(here & ((1u << lane) - 1));
#else
    return atomicAdd(counter, 1u);
#endif
}

// Return the document of a byte: the last document that starts at or before the byte. Empty documents may start at the
// same byte.
__device__ inline u32 document_of(const Chunk& chunk, u32 position) {
    u32 low = 0, high = chunk.num_documents;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (chunk.documents[middle] <= position) low = middle + 1;
        else high = middle;
    }
    return low - 1;
}

__device__ inline void flag_document(const Chunk& chunk, u32 position) {
    if (position < chunk.num_bytes) chunk.flags[document_of(chunk, position)] = 1;
}

// Return the sum of `mine` over all earlier threads of the block. Set *total to the sum over all threads of the block.
__device__ inline u32 sum_before(u32 mine, u32* total, u32* shared) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = mine;
    for (u32 distance = 1; distance < 32; distance *= 2) {
        u32 other = __shfl_up_sync(ALL, sum, distance);
        if (lane >= distance) sum += other;
    }
    if (lane == 31) shared[warp] = sum;
    __syncthreads();
    u32 before = 0, all = 0;
    for (u32 other = 0; other < THREADS / 32; other++) {
        if (other < warp) before += shared[other];
        all += shared[other];
    }
    __syncthreads();
    *total = all;
    return before + sum - mine;
}
