// What all kernels share: sizes, the word table's entry, and the two structures that every kernel is given.
//
// A chunk of text goes through the kernels in this order, one launch each:
//
//   begin_chunk ─► word_starts ─► look_up_words ─► look_up_long_words ─┐
//   ┌──────────────────────────────────────────────────────────────────┘
//   ├─► merge_words ───────────────────┬─► emit ─► end_chunk
//   └─► merge_windows ─► join_windows ─┘
//
// Between merges and emit comes apply_exceptions, where a tokenizer has any.
//
// A *tile* is 8,192 bytes of the chunk and the work of one block; a *group* is the 32 bytes of one of its threads.
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

constexpr u32 SHORT = 15;    // a word of up to so many bytes is its own key in the table
constexpr u32 WINDOW = 64;   // bytes that one warp merges at once: rounds go by their number, and all wait for the last
constexpr u32 STRIDE = 32;   // from one window of a longer word to the next: half of each is seen twice
constexpr u32 STEP = 256;    // bytes that are merged at once where windows cannot be joined
constexpr u32 IN_TILE = 512; // a word of up to so many bytes is looked up by one thread
constexpr u32 PROBES = 128;  // slots looked at before the table counts as full
constexpr u32 ALL = 0xFFFFFFFFu;
constexpr u32 NOTHING = 0xFFFFFFFFu;

// The ids of one word: up to INLINE of them in place, more of them in the pool.
//   inline   item[0] = how many, item[1…] = the ids          "def" -> {1, 9232}
//   pooled   item[0] = POOLED, word[1] = where in the pool, word[2] = how many, word[3] = 1 if there was no room
constexpr u32 INLINE = 16 / sizeof(token_t) - 1;
constexpr token_t POOLED = (token_t)~(token_t)0;
union __align__(16) Value {
    token_t item[16 / sizeof(token_t)];
    u32 word[4];
    uint4 all;
};

// One word in the table, 32 bytes: one sector of memory, so that key and ids come in one access.
//   short    low = bytes 0-7, inverted, high = bytes 8-14 | length << 56
//   longer   low = hash | 1,            high = IN_TEXT or IN_ARENA << 56 | length << 32 | where
// An entry is taken by its low half, with one compare-and-swap; its high half follows, and is 0 until then.
constexpr u64 IN_TEXT = 0xFF;   // of this chunk, until merge_words or join_windows has moved it
constexpr u64 IN_ARENA = 0xFE;  // bytes that stay as long as the table
struct __align__(32) Entry {
    u64 low, high;
    Value value;
};

// What a word of the text became, until its ids are known for certain: two bits of kind, thirty of content.
constexpr u32 AT_SLOT = 0u << 30;   // the slot of its entry
constexpr u32 ONE_ID = 1u << 30;    // the id
constexpr u32 TWO_BYTES = 2u << 30; // two bytes that no merge joins
constexpr u32 NO_IDS = 3u << 30;    // its document is done by the CPU
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

// Kept as long as the table is. One that ran out of anything is emptied before the next chunk.
struct TableState {
    u64 arena_used;
    u32 pool_used, num_words, must_clear, num_clears;
};

// Zeroed before each chunk.
struct Counters {
    u32 num_short, num_medium, num_windows, num_joins, num_long, next_tile;
};

struct Result {
    u32 num_ids, num_new_words, num_clears;
};

// A word that is one token though merges do not make it. num_bytes is 0 where the table is empty.
struct Exception {
    u32 hash, begin, num_bytes, id;  // begin: of its bytes, in exception_bytes
};

// What a loaded tokenizer has on the card: its tables, the word table, and room for what is known of one chunk.
struct Engine {
    const u8* classes;      // of every code point
    const u32* byte_ids;    // of every byte
    const u32* pair_ids;    // of every two bytes, or NOTHING
    const uint4* merges;    // left << 21 | right (64 bits), rank, product; hashed by the pair
    Entry* entries;
    u8* arena;
    token_t* pool;
    TableState* state;
    Counters* counters;
    u32* document_mask;     // one bit a byte: a document, or the end of the chunk, is here
    u32* starts;            // one bit a byte: a word starts here
    u32* codes;             // TILE for each tile: what its words became
    u16* words_before;      // in its tile, for each group
    u32* words_per_tile;
    u32* first_documents;   // for each tile, the first that begins in it or behind it
    u64* tile_totals;       // for each tile, see emit.cu
    u32* short_words;       // slots of new entries
    u32* medium_words;
    Window* windows;
    Join* joins;
    LongWord* long_words;
    token_t* window_ids;    // WINDOW for each window
    u64* window_masks;      // for each: where its tokens start
    const Exception* exceptions;
    const u8* exception_bytes;
    u64 arena_bytes;
    u32 pool_ids, slot_mask, max_words, merges_shift, merges_mask, is_in_order, exceptions_mask;
    u32 longest_exception;  // in bytes
};

struct Chunk {
    const u8* text;         // with room to read before and behind
    const u32* documents;   // where each begins; ascending
    u8* flags;              // for each: 1 if the CPU must do it; in the machine's memory, like the two below
    token_t* ids;
    u32* id_offsets;        // for each
    Result* result;
    u32 num_bytes, num_documents, num_tiles;
};

// An index in a list that many threads append to. The threads of a warp that are here together ask once: so they must
// all ask for the same list. (On a CPU, in the tests, they come one by one.)
__device__ inline u32 next_index(u32* counter) {
#ifdef __CUDACC__
    u32 here = __activemask(), lane = threadIdx.x % 32, leader = __ffs(here) - 1, base = 0;
    if (lane == leader) base = atomicAdd(counter, __popc(here));
    return __shfl_sync(here, base, leader) + __popc(here & ((1u << lane) - 1));
#else
    return atomicAdd(counter, 1u);
#endif
}

// The document of a byte: the last that begins at it or before it (empty ones before it begin there too).
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

// The sum over the threads before this one in its block, and over all of them.
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
