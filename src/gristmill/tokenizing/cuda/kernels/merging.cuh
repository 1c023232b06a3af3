// Byte-pair merges of a few bytes by one warp: WINDOW of them, or STEP.
//
// The reference merges the pair of lowest rank, the leftmost first, until none is left. Where merges are in order (one
// that uses a token ranks behind all that make it; checked when a tokenizer is loaded) a merge never makes a pair of
// lower rank possible: so all pairs of the lowest rank are merged in one round, from left to right. Where they are
// not, one pair is merged in a round.
//
//   l o w e r      round 1, rank of (l, o): 3, (e, r): 5      ->  lo w e r
//                  round 2, rank of (e, r): 5                 ->  lo w er
//   a a a          (a, a) at 0 and at 1: 0 takes the second, so 1 is gone  ->  aa a
#pragma once
#include "word_table.cuh"

// Tokens stand where their first byte was. ranks[i], products[i]: of the merge of token i and the next one.
template <u32 SIZE>
struct Piece {
    u32 ids[SIZE], ranks[SIZE], products[SIZE], alive[SIZE / 32], heads[SIZE / 32];
};

struct Merge {
    u32 rank, product;  // NOTHING: there is none
};

__device__ inline Merge merge_of(const Engine& engine, u32 left, u32 right) {
    u64 pair = (u64)left << 21 | right;
    u32 slot = (u32)(pair * 0x9E3779B97F4A7C15ull >> engine.merges_shift);
    for (;; slot = (slot + 1) & engine.merges_mask) {
        uint4 entry = __ldg(&engine.merges[slot]);
        bool is_it = entry.x == (u32)pair && entry.y == (u32)(pair >> 32);
        if (is_it || entry.z == NOTHING) return Merge{entry.z, entry.w};
    }
}

// The next set bit behind `at` of SIZE bits; SIZE if there is none.
template <u32 SIZE>
__device__ inline u32 next_of(const u32* masks, u32 at) {
    u32 number = (at + 1) / 32;
    if (number == SIZE / 32) return SIZE;
    u32 mask = masks[number] & ALL << (at + 1) % 32;
    while (mask == 0) {
        if (++number == SIZE / 32) return SIZE;
        mask = masks[number];
    }
    return number * 32 + __ffs(mask) - 1;
}

// The last set bit before `at`; NOTHING if there is none.
__device__ inline u32 last_of(const u32* masks, u32 at) {
    u32 number = at / 32, mask = masks[number] & ((1u << at % 32) - 1);
    while (mask == 0) {
        if (number-- == 0) return NOTHING;
        mask = masks[number];
    }
    return number * 32 + 31 - __clz(mask);
}

__device__ inline bool has_bit(const u32* masks, u32 at) { return masks[at / 32] >> at % 32 & 1; }

// By a whole warp. Afterwards `alive` says where tokens start, and `ids` has theirs there.
template <u32 SIZE>
__device__ inline void merge_piece(const Engine& engine, Piece<SIZE>& piece, const u8* text, u32 length) {
    u32 lane = threadIdx.x % 32, num_masks = (length + 31) / 32;
    for (u32 number = 0; number < SIZE / 32; number++) {
        u32 at = number * 32 + lane;
        if (at < length) piece.ids[at] = engine.byte_ids[text[at]];
        if (lane == 0) piece.alive[number] = at >= length ? 0 : length - at >= 32 ? ALL : (1u << (length - at)) - 1;
    }
    __syncwarp();
    for (u32 at = lane; at < num_masks * 32; at += 32) {
        Merge merge = at + 1 < length ? merge_of(engine, piece.ids[at], piece.ids[at + 1]) : Merge{NOTHING, 0};
        piece.ranks[at] = merge.rank;
        piece.products[at] = merge.product;
    }
    __syncwarp();
    while (true) {
        u32 lowest = NOTHING;
        for (u32 at = lane; at < num_masks * 32; at += 32) lowest = min(lowest, piece.ranks[at]);
        lowest = __reduce_min_sync(ALL, lowest);
        if (lowest == NOTHING) return;

        // Heads: the left ones of the pairs that are merged in this round.
        u32 taken = NOTHING;  // the right one of the last of them
        bool is_done = false;
        for (u32 number = 0; number < num_masks; number++) {
            u32 heads = 0;
            for (u32 left = __ballot_sync(ALL, piece.ranks[number * 32 + lane] == lowest); left; left &= left - 1) {
                u32 at = number * 32 + __ffs(left) - 1;
                if (at == taken || is_done) continue;
                taken = next_of<SIZE>(piece.alive, at);
                heads |= left & (0 - left);
                is_done = !engine.is_in_order;
            }
            if (lane == 0) piece.heads[number] = heads;
        }
        __syncwarp();
        for (u32 number = 0; number < num_masks; number++) {
            if (piece.heads[number] == 0) continue;
            u32 at = number * 32 + lane;
            bool is_head = piece.heads[number] >> lane & 1;
            u32 right = is_head ? next_of<SIZE>(piece.alive, at) : 0;
            __syncwarp();
            if (is_head) {
                piece.ids[at] = piece.products[at];
                piece.ranks[right] = NOTHING;
                atomicAnd(&piece.alive[right / 32], ~(1u << right % 32));
            }
            __syncwarp();
        }
        // What is new, or has a new one behind it, is looked up: each by its own lane, so that one wait is enough.
        for (u32 number = 0; number < num_masks; number++) {
            u32 at = number * 32 + lane;
            if (!(piece.alive[number] >> lane & 1)) continue;
            u32 right = next_of<SIZE>(piece.alive, at);
            if (!has_bit(piece.heads, at) && (right == SIZE || !has_bit(piece.heads, right))) continue;
            Merge merge = right < SIZE ? merge_of(engine, piece.ids[at], piece.ids[right]) : Merge{NOTHING, 0};
            piece.ranks[at] = merge.rank;
            piece.products[at] = merge.product;
        }
        __syncwarp();
    }
}

template <u32 SIZE>
__device__ inline u32 num_tokens(const Piece<SIZE>& piece) {
    u32 num = 0;
    for (u32 number = 0; number < SIZE / 32; number++) num += __popc(piece.alive[number]);
    return num;
}

// The ids of tokens that start before `end`, in order. By a whole warp.
template <u32 SIZE>
__device__ inline void write_tokens(const Piece<SIZE>& piece, token_t* out, u32 end = SIZE) {
    u32 lane = threadIdx.x % 32, num = 0;
    for (u32 number = 0; number < SIZE / 32; number++) {
        u32 alive = piece.alive[number], at = number * 32 + lane;
        if (alive >> lane & 1 && at < end) out[num + __popc(alive & ((1u << lane) - 1))] = (token_t)piece.ids[at];
        num += __popc(alive);
    }
}

// A word's bytes into the arena, for those who compare with it later. By a whole warp.
__device__ inline void keep_bytes(const Engine& engine, const Chunk& chunk, Entry* entry) {
    u32 lane = threadIdx.x % 32, length = length_of(entry->high);
    const u8* text = bytes_of(engine, chunk, entry->high);
    u64 at = lane == 0 ? take_arena(engine, length) : 0;
    at = __shfl_sync(ALL, at, 0);
    if (at == ~0ull) return;
    for (u32 byte = lane; byte < length; byte += 32) engine.arena[at + byte] = text[byte];
    __syncwarp();
    if (lane == 0) entry->high = long_key(IN_ARENA, length, at);
}
