// New words -> ids. Everything that is new in a chunk is merged in one launch, longest first, so that nothing waits for
// the slowest: windows of long words and words of up to 64 bytes by a warp each, words of up to 15 bytes by a thread.
#include "merging.cuh"

constexpr u32 WARPS = 4;

// 32 short words at once: a column for each lane.
struct ShortWords {
    u32 ids[SHORT][32], ranks[SHORT][32], products[SHORT][32];
};

__device__ inline void merge_window(const Engine& engine, const Chunk& chunk, u32 number) {
    Window window = engine.windows[number];
    u64 high = engine.entries[window.slot].high;
    u32 begin = window.index * STRIDE, length = min(WINDOW, length_of(high) - begin);
    Tokens tokens = merged_window(engine, bytes_of(engine, chunk, high) + begin, length);
    write_tokens(tokens, engine.window_ids + (u64)number * WINDOW);
    if (threadIdx.x % 32 == 0) engine.window_masks[number] = tokens.alive;
}

__device__ inline void merge_medium(const Engine& engine, const Chunk& chunk, u32 slot) {
    Entry* entry = &engine.entries[slot];
    Tokens tokens = merged_window(engine, bytes_of(engine, chunk, entry->high), length_of(entry->high));
    u32 lane = threadIdx.x % 32, num_ids = __popc((u32)tokens.alive) + __popc((u32)(tokens.alive >> 32));
    if (num_ids <= INLINE) {
        write_tokens(tokens, &entry->value.item[1]);
        if (lane == 0) entry->value.item[0] = (token_t)num_ids;
    } else {
        u32 at = lane == 0 ? take_pool(engine, num_ids) : 0;
        at = __shfl_sync(ALL, at, 0);
        if (at != NOTHING) write_tokens(tokens, engine.pool + at);
        if (lane == 0) entry->value = at == NOTHING ? no_room() : pooled(at, num_ids);
    }
    __syncwarp();
    keep_bytes(engine, chunk, entry);
}

__device__ inline void look_up_pair(const MergeTable& table, ShortWords& words, u32 lane, u32 at) {
    Merge merge = merge_of(table, words.ids[at][lane], words.ids[at + 1][lane]);
    words.ranks[at][lane] = merge.rank;
    words.products[at][lane] = merge.product;
}

__device__ inline void merge_short(const Engine& engine, ShortWords& words, u32 slot) {
    Entry* entry = &engine.entries[slot];
    const MergeTable table = merge_table(engine);
    u64 low = ~entry->low, high = entry->high;
    u32 lane = threadIdx.x % 32, num = (u32)(high >> 56);
    for (u32 at = 0; at < num; at++)
        words.ids[at][lane] = engine.byte_ids[(at < 8 ? low >> 8 * at : high >> 8 * (at - 8)) & 0xFF];
    for (u32 at = 0; at + 1 < num; at++) look_up_pair(table, words, lane, at);
    while (true) {
        u32 lowest = NOTHING, head = 0;
        for (u32 at = 0; at + 1 < num; at++)
            if (words.ranks[at][lane] < lowest) lowest = words.ranks[at][lane], head = at;
        if (lowest == NOTHING) break;
        num--;
        words.ids[head][lane] = words.products[head][lane];
        for (u32 at = head + 1; at < num; at++) {
            words.ids[at][lane] = words.ids[at + 1][lane];
            words.ranks[at][lane] = words.ranks[at + 1][lane];
            words.products[at][lane] = words.products[at + 1][lane];
        }
        if (head > 0) look_up_pair(table, words, lane, head - 1);
        if (head + 1 < num) look_up_pair(table, words, lane, head);
    }
    Value value = {};
    if (num <= INLINE) {
        value.item[0] = (token_t)num;
        for (u32 at = 0; at < INLINE; at++)
            if (at < num) value.item[at + 1] = (token_t)words.ids[at][lane];
    } else {
        u32 pool = take_pool(engine, num);
        for (u32 at = 0; at < num && pool != NOTHING; at++) engine.pool[pool + at] = (token_t)words.ids[at][lane];
        value = pool == NOTHING ? no_room() : pooled(pool, num);
    }
    entry->value = value;
}

extern "C" __global__ void __launch_bounds__(WARPS * 32) merge_words(const Engine* __restrict__ the_engine, const Chunk* __restrict__ the_chunk) {
    const Engine& engine = *the_engine;
    const Chunk& chunk = *the_chunk;
    __shared__ ShortWords words[WARPS];
    u32 warp = blockIdx.x * WARPS + threadIdx.x / 32, num_warps = gridDim.x * WARPS, lane = threadIdx.x % 32;
    // One list of all: while there are fewer of them than warps, nobody has two.
    const Counters counters = *engine.counters;
    u32 end_of_windows = counters.num_windows, end_of_medium = end_of_windows + counters.num_medium;
    u32 end = end_of_medium + (counters.num_short + 31) / 32;
    for (u32 number = warp; number < end; number += num_warps) {
        if (number < end_of_windows) {
            merge_window(engine, chunk, number);
        } else if (number < end_of_medium) {
            merge_medium(engine, chunk, engine.medium_words[number - end_of_windows]);
        } else {
            u32 word = (number - end_of_medium) * 32 + lane;
            if (word < counters.num_short) merge_short(engine, words[threadIdx.x / 32], engine.short_words[word]);
        }
        __syncwarp();
    }
}
