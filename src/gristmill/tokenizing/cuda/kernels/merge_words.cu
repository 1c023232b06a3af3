// New words -> ids. Everything that is new in a chunk is merged in one launch, so that nothing waits for the slowest:
// words of up to 64 bytes, and windows of longer ones, by a warp each.
#include "merging.cuh"

constexpr u32 WARPS = 4;

__device__ inline Tokens merged_bytes(const Engine& engine, const u8* text, u32 length) {
    u32 lane = threadIdx.x % 32;
    return merged_window(engine, lane < length ? text[lane] : 0, lane + 32 < length ? text[lane + 32] : 0, length);
}

__device__ inline void merge_window(const Engine& engine, const Chunk& chunk, u32 number) {
    Window window = engine.windows[number];
    u64 high = engine.entries[window.slot].high;
    u32 begin = window.index * STRIDE, length = min(WINDOW, length_of(high) - begin);
    Tokens tokens = merged_bytes(engine, bytes_of(engine, chunk, high) + begin, length);
    write_tokens(tokens, engine.window_ids + (u64)number * WINDOW);
    if (threadIdx.x % 32 == 0) engine.window_masks[number] = tokens.alive;
}

__device__ inline Tokens merged_key(const Engine& engine, u64 low, u64 high) {
    u32 lane = threadIdx.x % 32;
    u64 byte = lane < 8 ? ~low >> 8 * lane : lane < SHORT ? high >> 8 * (lane - 8) : 0;
    return merged_window(engine, (u32)byte & 0xFF, 0, length_of(high));
}

__device__ inline void merge_word(const Engine& engine, const Chunk& chunk, Entry* entry) {
    u64 low = entry->low, high = entry->high;
    bool is_long = is_long_key(high);
    Tokens tokens = is_long ? merged_bytes(engine, bytes_of(engine, chunk, high), length_of(high)) : merged_key(engine, low, high);
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
    if (is_long) keep_bytes(engine, chunk, entry);
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    merge_words(const Engine* __restrict__ the_engine, const Chunk* __restrict__ the_chunk) {
    const Engine& engine = *the_engine;
    const Chunk& chunk = *the_chunk;
    u32 warp = blockIdx.x * WARPS + threadIdx.x / 32, num_warps = gridDim.x * WARPS;
    u32 num_windows = engine.counters->num_windows, num_new = engine.counters->num_new;
    for (u32 number = warp; number < num_windows + num_new; number += num_warps) {
        if (number < num_windows) merge_window(engine, chunk, number);
        else merge_word(engine, chunk, &engine.entries[engine.new_words[number - num_windows]]);
        __syncwarp();
    }
}
