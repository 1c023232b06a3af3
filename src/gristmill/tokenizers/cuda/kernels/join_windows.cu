// Encode words of more than 64 bytes: merge each window of a word, then join the windows.
//
// A sequence of tokens is the encoding of a word if and only if every pair of adjacent tokens is the encoding of the
// bytes of the pair. tests/tokenizers/cuda/test_long_words.py proves this for any order of merges. Therefore, two
// windows can be joined at a token that both windows have at the same bytes. Every pair before the token is from the
// left window, and every pair after the token is from the right window.
//
//   left     …|for|get|ful|ness|to|da          the token "ness" is in both: take the left window's tokens before it,
//   right              u|l|ness|today|…        and the right window's tokens from it on
//
// Windows of a run ("-----…") may have no token in common, because the tokens depend on the start of the window. Such
// a word is merged in steps of larger pieces. Each piece starts at a token of the previous piece. If the text repeats,
// its tokens repeat too.
#include "merging.cuh"

constexpr u32 WINDOW_WARPS = 4;

extern "C" __global__ void __launch_bounds__(WINDOW_WARPS * 32)
    merge_windows(const Engine* __restrict__ the_engine, const Chunk* __restrict__ the_chunk) {
    const Engine& engine = *the_engine;
    const Chunk& chunk = *the_chunk;
    u32 warp = blockIdx.x * WINDOW_WARPS + threadIdx.x / 32, num_warps = gridDim.x * WINDOW_WARPS;
    for (u32 number = warp; number < engine.counters->num_windows; number += num_warps) {
        Window window = engine.windows[number];
        u64 high = engine.entries[window.slot].high;
        u32 begin = window.index * STRIDE, length = min(WINDOW, length_of(high) - begin);
        Tokens tokens = merged_window(engine, bytes_of(engine, chunk, high) + begin, length);
        write_tokens(tokens, engine.window_ids + (u64)number * WINDOW);
        if (threadIdx.x % 32 == 0) engine.window_masks[number] = tokens.alive;
    }
}

__device__ inline u32 next_start(u64 starts, u32 at) {
    u64 above = bits_above(starts, at);
    return above ? (u32)__ffsll(above) - 1 : WINDOW;
}

// Find a token that both windows have. Return its offset in the right window, or NOTHING if there is none.
__device__ inline u32 common_token(u64 left, u64 right) {
    for (u64 both = left >> STRIDE & right; both; both &= both - 1) {
        u32 at = (u32)__ffsll(both) - 1;
        if (next_start(left, at + STRIDE) == next_start(right, at) + STRIDE) return at;
    }
    return NOTHING;
}

__device__ inline u32 tokens_before(u64 starts, u32 end) {
    u64 before = end == WINDOW ? starts : starts & ((1ull << end) - 1);
    return __popc((u32)before) + __popc((u32)(before >> 32));
}

__device__ inline u32 tokens_before(const Piece& piece, u32 end) {
    u32 num = 0;
    for (u32 number = 0; number < end / 32; number++) num += __popc(piece.alive[number]);
    return end % 32 ? num + __popc(piece.alive[end / 32] & ((1u << end % 32) - 1)) : num;
}

__device__ inline void store_ids(const Engine& engine, const Chunk& chunk, Entry* entry, u32 at, u32 num_ids) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        Value value = at == NOTHING ? no_room() : pooled(at, num_ids);
        if (at != NOTHING && num_ids <= INLINE) {
            value.item[0] = (token_t)num_ids;
            for (u32 number = 0; number < num_ids; number++) value.item[number + 1] = engine.pool[at + number];
        }
        entry->value = value;
    }
    __syncwarp();
    keep_bytes(engine, chunk, entry);
}

// Join the windows of a word, or return false if two adjacent windows have no token in common. The first pass counts
// the ids, and the second pass writes the ids.
__device__ inline bool joined(const Engine& engine, const Chunk& chunk, Join join, u32 num_windows) {
    u32 lane = threadIdx.x % 32, pool = 0, total = 0;
    const u64* starts = engine.window_masks + join.first_window;
    const token_t* ids = engine.window_ids + (u64)join.first_window * WINDOW;
    for (u32 pass = 0; pass < 2; pass++) {
        total = 0;
        for (u32 base = 0; base < num_windows; base += 32) {
            u32 window = base + lane, from = 0, to = 0;
            bool is_cut = false;
            if (window < num_windows) {
                u64 mine = starts[window];
                u32 begin = window == 0 ? 0 : common_token(starts[window - 1], mine);
                u32 end = window + 1 == num_windows ? 0 : common_token(mine, starts[window + 1]);
                is_cut = begin == NOTHING || end == NOTHING;
                if (!is_cut) {
                    from = tokens_before(mine, begin);
                    to = tokens_before(mine, window + 1 == num_windows ? WINDOW : end + STRIDE);
                }
            }
            if (__ballot_sync(ALL, is_cut)) return false;
            u32 sum = to - from;
            for (u32 distance = 1; distance < 32; distance *= 2) {
                u32 other = __shfl_up_sync(ALL, sum, distance);
                if (lane >= distance) sum += other;
            }
            if (pass == 1)
                for (u32 at = from; at < to; at++)
                    engine.pool[pool + total + sum - to + at] = ids[(u64)window * WINDOW + at];
            total += __shfl_sync(ALL, sum, 31);
        }
        if (pass == 0) {
            pool = lane == 0 ? take_pool(engine, total) : 0;
            pool = __shfl_sync(ALL, pool, 0);
            if (pool == NOTHING) break;
        }
    }
    store_ids(engine, chunk, &engine.entries[join.slot], pool, total);
    return true;
}

// Return the number of bytes, from the start of the text, that equal the byte `period` positions later.
__device__ inline u32 repeated(const u8* text, u32 length, u32 period) {
    u32 lane = threadIdx.x % 32;
    for (u32 base = 0; base + period < length; base += 256) {
        u32 at = base + lane * 8, num_same = 8;
        for (u32 byte = 0; byte < 8; byte++)
            if (num_same == 8 && (at + byte + period >= length || text[at + byte] != text[at + byte + period]))
                num_same = byte;
        u32 lanes = __ballot_sync(ALL, num_same < 8);
        if (lanes) return base + (__ffs(lanes) - 1) * 8 + __shfl_sync(ALL, num_same, __ffs(lanes) - 1);
    }
    return length - period;
}

// Merge a word in pieces of STEP bytes. The ids are written to the memory of the word's windows, which is larger than
// the word. Return the number of ids, or NOTHING if a piece does not start with the expected token, or if its first
// token is longer than half of STEP.
__device__ inline u32 merged_in_steps(const Engine& engine, Piece& piece, const u8* text, u32 length, token_t* out) {
    u32 lane = threadIdx.x % 32, at = 0, num_ids = 0;
    u32 expected = 0;  // end of the first token; 0 if any end is valid
    while (true) {
        u32 num_bytes = min(STEP, length - at);
        merge_piece(engine, piece, text + at, num_bytes);
        u32 first_end = min(num_bytes, next_of(piece.alive, 0));
        if (expected && first_end != expected) return NOTHING;
        if (length - at <= STEP) {
            write_tokens(piece, out + num_ids);
            return num_ids + num_tokens(piece);
        }
        u32 step = last_of(piece.alive, STEP / 2 + 1);  // the last token that starts in the first half
        if (step == 0) return NOTHING;
        expected = next_of(piece.alive, step) - step;
        u32 num_step = tokens_before(piece, step), num_repeats = 0;
        // As long as the bytes repeat, the piece at `at + step` has the same bytes and therefore the same tokens.
        u32 num_same = expected == first_end ? repeated(text + at, length - at, step) : 0;
        if (num_same >= STEP) num_repeats = (num_same - STEP) / step + 1;
        write_tokens(piece, out + num_ids, step);
        __syncwarp();
        for (u32 more = num_step + lane; more < num_step * (num_repeats + 1); more += 32)
            out[num_ids + more] = out[num_ids + more % num_step];
        num_ids += num_step * (num_repeats + 1);
        at += step * (num_repeats + 1);
        __syncwarp();
    }
}

__device__ inline void merge_in_steps(const Engine& engine, const Chunk& chunk, Piece& piece, Join join) {
    Entry* entry = &engine.entries[join.slot];
    u32 lane = threadIdx.x % 32, length = length_of(entry->high);
    token_t* steps = engine.window_ids + (u64)join.first_window * WINDOW;
    u32 num_ids = merged_in_steps(engine, piece, bytes_of(engine, chunk, entry->high), length, steps);
    u32 pool = NOTHING;
    if (num_ids != NOTHING) {
        pool = lane == 0 ? take_pool(engine, num_ids) : 0;
        pool = __shfl_sync(ALL, pool, 0);
    }
    __syncwarp();
    for (u32 at = lane; at < num_ids && pool != NOTHING; at += 32) engine.pool[pool + at] = steps[at];
    store_ids(engine, chunk, entry, pool, num_ids);
}

extern "C" __global__ void __launch_bounds__(32)
    join_windows(const Engine* __restrict__ the_engine, const Chunk* __restrict__ the_chunk) {
    const Engine& engine = *the_engine;
    const Chunk& chunk = *the_chunk;
    __shared__ Piece piece;
    for (u32 number = blockIdx.x; number < engine.counters->num_joins; number += gridDim.x) {
        Join join = engine.joins[number];
        u32 num_windows = windows_of(length_of(engine.entries[join.slot].high));
        if (!joined(engine, chunk, join, num_windows)) merge_in_steps(engine, chunk, piece, join);
        __syncwarp();
    }
}
