// Look up words of more than 512 bytes, with a block for each word: find its end, its hash and its table entry.
//
// Such words are runs of spaces or dashes, embedded data, and text without spaces. They are few, but they recur like
// other words, so they have entries in the table too.
#include "word_table.cuh"

__device__ inline u32 end_of(const Engine& engine, const Chunk& chunk, u32 position, u32* first_start) {
    if (threadIdx.x == 0) *first_start = NOTHING;
    __syncthreads();
    u32 from = position + 1;
    for (u32 base = from / GROUP; base <= chunk.num_bytes / GROUP; base += THREADS) {
        u32 group = base + threadIdx.x;
        u32 starts = group <= chunk.num_bytes / GROUP ? engine.starts[group] : 0;
        if (group == from / GROUP) starts &= ALL << from % GROUP;
        if (starts) atomicMin(first_start, group * GROUP + __ffs(starts) - 1);
        __syncthreads();
        u32 found = *first_start;
        __syncthreads();
        if (found != NOTHING) return found;
    }
    return chunk.num_bytes;
}

__device__ inline u64 hash_of(const u8* word, u32 length, u64* sum) {
    if (threadIdx.x == 0) *sum = length;
    __syncthreads();
    u64 mine = 0;
    for (u32 at = threadIdx.x * 8; at < length; at += THREADS * 8)
        mine += mixed(eight_of(word, length, at), at + 1) * 0x9E3779B97F4A7C15ull;
    for (u32 distance = 16; distance; distance /= 2) mine += __shfl_xor_sync(ALL, mine, distance);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
    __syncthreads();
    u64 hash = *sum;
    __syncthreads();
    return mixed(hash, length) | 1;
}

__device__ inline bool are_same_for_all(const u8* first, const u8* second, u32 length, u32* num_different) {
    if (threadIdx.x == 0) *num_different = 0;
    __syncthreads();
    u64 difference = 0;
    for (u32 at = threadIdx.x * 8; at < length; at += THREADS * 8)
        difference |= eight_of(first, length, at) ^ eight_of(second, length, at);
    if (difference) atomicAdd(num_different, 1u);
    __syncthreads();
    u32 num = *num_different;
    __syncthreads();
    return num == 0;
}

struct Found {
    u32 slot;  // or NOTHING
    bool is_new;
};

// Find or claim the entry of a word. `shared` and `count` are in shared memory. `shared` receives the high half of the
// entry that the first thread found, and `count` the number of threads that found a difference.
__device__ inline Found find(const Engine& engine, const Chunk& chunk, u32 position, u32 length, u64 low, u64* shared,
                             u32* count) {
    u32 slot = (u32)(low >> 1) & engine.slot_mask;
    for (u32 probe = 0; probe < PROBES; probe++, slot = (slot + 1) & engine.slot_mask) {
        if (threadIdx.x == 0) {
            bool is_new;
            u64 high = take(&engine.entries[slot], low, long_key(IN_TEXT, length, position), &is_new);
            *shared = is_new ? 1 : high;  // no key has a high half of 1
        }
        __syncthreads();
        u64 found = *shared;
        __syncthreads();
        if (found == 1) return Found{slot, true};
        bool may_be = is_long_key(found) && length_of(found) == length;
        if (may_be && are_same_for_all(chunk.text + position, bytes_of(engine, chunk, found), length, count))
            return Found{slot, false};
    }
    return Found{NOTHING, false};
}

extern "C" __global__ void __launch_bounds__(THREADS)
    look_up_long_words(const Engine* __restrict__ the_engine, const Chunk* __restrict__ the_chunk) {
    const Engine& engine = *the_engine;
    const Chunk& chunk = *the_chunk;
    __shared__ u64 shared;
    __shared__ u32 count;
    for (u32 number = blockIdx.x; number < engine.counters->num_long; number += gridDim.x) {
        LongWord word = engine.long_words[number];
        u32 length = end_of(engine, chunk, word.position, &count) - word.position;
        u64 low = hash_of(chunk.text + word.position, length, &shared);
        Found found = find(engine, chunk, word.position, length, low, &shared, &count);
        u32 num_windows = found.is_new ? windows_of(length) : 0;
        if (threadIdx.x == 0) {
            engine.codes[word.code] = found.slot == NOTHING ? NO_IDS : AT_SLOT | found.slot;
            if (found.slot == NOTHING) {
                engine.state->must_clear = 1;
                flag_document(chunk, word.position);
            }
            if (found.is_new) {
                count = atomicAdd(&engine.counters->num_windows, num_windows);
                engine.joins[atomicAdd(&engine.counters->num_joins, 1u)] = Join{found.slot, count};
            }
        }
        __syncthreads();
        u32 first = count;
        for (u32 index = threadIdx.x; index < num_windows; index += THREADS)
            engine.windows[first + index] = Window{found.slot, index};
        __syncthreads();
    }
}
