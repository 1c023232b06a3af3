// Look up the words of each tile in the word table, and claim an entry for each new word. Write a code for each word.
//
//   1  Convert the starts in the tile to a list of words.
//   2  Look up words of one or two bytes (more than half of all words) in separate tables.
//   3  Look up words of up to 15 bytes by their bytes.
//   4  Look up words of up to 512 bytes by a hash, and compare their bytes.
//   5  Leave longer words to look_up_long_words, which uses a block for each word.
#include "word_table.cuh"

__device__ inline void add_windows(const Engine& engine, u32 slot, u32 length) {
    u32 num_windows = windows_of(length), first = atomicAdd(&engine.counters->num_windows, num_windows);
    for (u32 index = 0; index < num_windows; index++) engine.windows[first + index] = Window{slot, index};
    engine.joins[next_index(&engine.counters->num_joins)] = Join{slot, first};
}

__device__ inline u32 no_slot(const Engine& engine, const Chunk& chunk, u32 position) {
    engine.state->must_clear = 1;
    flag_document(chunk, position);
    return NO_IDS;
}

__device__ inline u32 look_up_short(const Engine& engine, const Chunk& chunk, u32 position, u64 low, u64 high) {
    u32 slot = (u32)mixed(low, high) & engine.slot_mask;
    for (u32 probe = 0; probe < PROBES; probe++, slot = (slot + 1) & engine.slot_mask) {
        Entry* entry = &engine.entries[slot];
        ulonglong2 key = *(const ulonglong2*)entry;
        if (key.x == low && key.y == high) return code_of(slot, entry->value);
        if (key.x != 0 && (key.x != low || key.y != 0)) continue;
        bool is_new;
        u64 found = take(entry, low, high, &is_new);
        if (is_new) engine.short_words[next_index(&engine.counters->num_short)] = slot;
        if (found == high) return AT_SLOT | slot;
    }
    return no_slot(engine, chunk, position);
}

__device__ __noinline__ u32 look_up_medium(const Engine& engine, const Chunk& chunk, u32 position, u32 length) {
    const u8* word = chunk.text + position;
    u64 hash = hashed(word, length), low = (hash ^ hash >> 29) | 1, high = long_key(IN_TEXT, length, position);
    u32 slot = (u32)(low >> 1) & engine.slot_mask;
    for (u32 probe = 0; probe < PROBES; probe++, slot = (slot + 1) & engine.slot_mask) {
        Entry* entry = &engine.entries[slot];
        ulonglong2 key = *(const ulonglong2*)entry;
        if (key.x != 0 && key.x != low) continue;
        bool is_new = false;
        u64 found = key.x == low && key.y != 0 ? key.y : take(entry, low, high, &is_new);
        if (is_new) {
            if (length <= WINDOW) engine.medium_words[next_index(&engine.counters->num_medium)] = slot;
            else add_windows(engine, slot, length);
            return AT_SLOT | slot;
        }
        if (is_long_key(found) && length_of(found) == length && are_same(word, bytes_of(engine, chunk, found), length))
            return code_of(slot, entry->value);
    }
    return no_slot(engine, chunk, position);
}

// Return the first word start in the 1,024 bytes after the tile, relative to the start of the tile, or NOTHING.
__device__ inline u32 end_of_last_word(const Engine& engine, const Chunk& chunk, u32 tile) {
    u32 lane = threadIdx.x, group = (tile + 1) * GROUPS + lane;
    u32 starts = group < chunk.num_tiles * GROUPS ? engine.starts[group] : 0;
    u32 lanes = __ballot_sync(ALL, starts != 0);
    if (!lanes) return NOTHING;
    u32 first = __ffs(lanes) - 1;
    return TILE + first * GROUP + __ffs(__shfl_sync(ALL, starts, first)) - 1;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    look_up_words(const Engine* __restrict__ the_engine, const Chunk* __restrict__ the_chunk) {
    const Engine& engine = *the_engine;
    const Chunk& chunk = *the_chunk;
    if (blockIdx.x >= chunk.num_tiles) return;  // the grid has a block for each tile of the largest chunk
    __shared__ __align__(16) u8 text[TILE + 32];
    __shared__ u16 begins[TILE], short_ones[TILE / 3 + 1], medium_ones[TILE / SHORT];
    __shared__ u32 scratch[THREADS / 32], num_short, num_medium, last_end;
    u32 tile = blockIdx.x, tile_begin = tile * TILE;

    for (u32 at = threadIdx.x; at < sizeof(text) / 16; at += THREADS)
        ((uint4*)text)[at] = ((const uint4*)(chunk.text + tile_begin))[at];
    u32 begin = tile_begin + threadIdx.x * GROUP, group = begin / GROUP, starts = engine.starts[group];
    if (threadIdx.x == 0) num_short = num_medium = 0;
    if (threadIdx.x < 32) {
        u32 end = end_of_last_word(engine, chunk, tile);
        if (threadIdx.x == 0) last_end = end;
    }
    __syncthreads();
    if (begin <= chunk.num_bytes && chunk.num_bytes - begin < GROUP) {  // no word starts at the end of the chunk
        starts &= (1u << (chunk.num_bytes - begin)) - 1;
        last_end = chunk.num_bytes - tile_begin;
    }
    u32 num_words, index = sum_before(__popc(starts), &num_words, scratch);
    engine.words_before[group] = (u16)index;
    if (threadIdx.x == 0) engine.words_per_tile[tile] = num_words;
    for (u32 left = starts; left; left &= left - 1) begins[index++] = (u16)(threadIdx.x * GROUP + __ffs(left) - 1);
    __syncthreads();

    u32* codes = engine.codes + (u64)tile * TILE;
    for (u32 word = threadIdx.x; word < num_words; word += THREADS) {
        u32 at = begins[word], end = word + 1 < num_words ? begins[word + 1] : last_end, length = end - at;
        if (length == 1) {
            codes[word] = ONE_ID | engine.byte_ids[text[at]];
        } else if (length == 2) {
            u32 pair = text[at] | (u32)text[at + 1] << 8, id = engine.pair_ids[pair];
            codes[word] = id == NOTHING ? TWO_BYTES | pair : ONE_ID | id;
        } else if (end == NOTHING || length > IN_TILE) {
            engine.long_words[next_index(&engine.counters->num_long)] = LongWord{tile_begin + at, tile * TILE + word};
        } else if (length <= SHORT) {
            short_ones[next_index(&num_short)] = (u16)word;
        } else {
            medium_ones[next_index(&num_medium)] = (u16)word;
        }
    }
    __syncthreads();

    for (u32 number = threadIdx.x; number < num_short; number += THREADS) {
        u32 word = short_ones[number], at = begins[word];
        u32 length = (word + 1 < num_words ? begins[word + 1] : last_end) - at;
        const u32* four = (const u32*)text + at / 4;
        u32 shift = at % 4 * 8;
        u64 low = (u64)__funnelshift_r(four[1], four[2], shift) << 32 | __funnelshift_r(four[0], four[1], shift);
        u64 high = (u64)__funnelshift_r(four[3], four[4], shift) << 32 | __funnelshift_r(four[2], four[3], shift);
        if (length < 8) low &= (1ull << 8 * length) - 1;
        high = length <= 8 ? 0 : high & ((1ull << 8 * (length - 8)) - 1);
        codes[word] = look_up_short(engine, chunk, tile_begin + at, short_low(low), high | (u64)length << 56);
    }
    for (u32 number = threadIdx.x; number < num_medium; number += THREADS) {
        u32 word = medium_ones[number], at = begins[word];
        u32 length = (word + 1 < num_words ? begins[word + 1] : last_end) - at;
        codes[word] = look_up_medium(engine, chunk, tile_begin + at, length);
    }
}
