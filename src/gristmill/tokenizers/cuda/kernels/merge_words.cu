// Encode new words of up to 64 bytes, with one thread for a word of up to 15 bytes and one warp for a longer word.
//
// One warp for every word would be simpler, but it was slower: most new words are short and leave most lanes idle.
#include "merging.cuh"

constexpr u32 WARPS = 4;

// 32 short words, with one column for the word of each lane.
struct ShortWords {
    u32 ids[SHORT][32], ranks[SHORT][32], products[SHORT][32];
};

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

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    merge_words(const Engine* __restrict__ the_engine, const Chunk* __restrict__ the_chunk) {
    const Engine& engine = *the_engine;
    const Chunk& chunk = *the_chunk;
    __shared__ ShortWords words[WARPS];
    u32 warp = blockIdx.x * WARPS + threadIdx.x / 32, num_warps = gridDim.x * WARPS, lane = threadIdx.x % 32;
    // Medium and short words form one list, so that no warp gets two items while another has none.
    u32 num_medium = engine.counters->num_medium, num_short = engine.counters->num_short;
    for (u32 number = warp; number < num_medium + (num_short + 31) / 32; number += num_warps) {
        u32 word = (number - num_medium) * 32 + lane;
        if (number < num_medium) merge_medium(engine, chunk, engine.medium_words[number]);
        else if (word < num_short) merge_short(engine, words[threadIdx.x / 32], engine.short_words[word]);
        __syncwarp();
    }
}
