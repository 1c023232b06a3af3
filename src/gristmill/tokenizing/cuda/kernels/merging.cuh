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

// Tokens stand where their first byte was. ranks[i], products[i]: of the merge of token i and the next one, which stands
// at next[i] (SIZE: there is none). merged_in[i]: the round in which it last took its next one in.
template <u32 SIZE>
struct Piece {
    u32 ids[SIZE], ranks[SIZE], products[SIZE];
    u16 next[SIZE], merged_in[SIZE];
    u32 alive[SIZE / 32];
};

// What a look-up needs, in registers.
struct MergeTable {
    const uint4* entries;
    u32 shift, mask, is_in_order;
};

__device__ inline MergeTable merge_table(const Engine& engine) {
    return MergeTable{engine.merges, engine.merges_shift, engine.merges_mask, engine.is_in_order};
}

struct Merge {
    u32 rank, product;  // NOTHING: there is none
};

__device__ inline Merge merge_of(const MergeTable& table, u32 left, u32 right) {
    u64 pair = (u64)left << 21 | right;
    u32 slot = (u32)(pair * 0x9E3779B97F4A7C15ull >> table.shift);
    for (;; slot = (slot + 1) & table.mask) {
        uint4 entry = __ldg(&table.entries[slot]);
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

// By a whole warp. Afterwards `alive` says where tokens start, and `ids` has theirs there.
template <u32 SIZE>
__device__ inline void merge_piece(const Engine& engine, Piece<SIZE>& piece, const u8* text, u32 length) {
    const MergeTable table = merge_table(engine);
    u32 lane = threadIdx.x % 32, end = (length + 31) / 32 * 32;
    for (u32 at = lane; at < SIZE; at += 32) {
        if (at < length) piece.ids[at] = engine.byte_ids[text[at]];
        piece.next[at] = (u16)(at + 1 < length ? at + 1 : SIZE);
        piece.merged_in[at] = 0;
        u32 alive = __ballot_sync(ALL, at < length);
        if (lane == 0) piece.alive[at / 32] = alive;
    }
    __syncwarp();
    for (u32 at = lane; at < end; at += 32) {
        Merge merge = at + 1 < length ? merge_of(table, piece.ids[at], piece.ids[at + 1]) : Merge{NOTHING, 0};
        piece.ranks[at] = merge.rank;
        piece.products[at] = merge.product;
    }
    for (u32 round = 1;; round++) {
        u32 lowest = NOTHING;
        for (u32 at = lane; at < end; at += 32) lowest = min(lowest, piece.ranks[at]);
        lowest = __reduce_min_sync(ALL, lowest);
        if (lowest == NOTHING) return;

        // Pairs of this rank, from left to right. Two may share a token only if all three are the same ("a a a"): then the
        // left one takes it, and the other is gone.
        u32 taken = NOTHING;  // what the last of them takes in
        for (u32 at = lane; at < end; at += 32) {
            u32 right = piece.next[at];
            bool is_pair = piece.ranks[at] == lowest;
            u32 heads = __ballot_sync(ALL, is_pair);
            if (heads == 0) continue;
            if (taken != NOTHING || __ballot_sync(ALL, is_pair && piece.ranks[right] == lowest)) {
                u32 left = heads, base = at - lane;
                for (heads = 0; left; left &= left - 1) {
                    u32 head = base + __ffs(left) - 1;
                    if (head == taken) continue;
                    taken = piece.next[head];
                    heads |= left & (0 - left);
                }
            }
            if (!table.is_in_order) heads &= 0 - heads;
            __syncwarp();
            if (heads >> lane & 1) {
                piece.ids[at] = piece.products[at];
                piece.next[at] = piece.next[right];
                piece.merged_in[at] = (u16)round;
                piece.ranks[right] = NOTHING;
                atomicAnd(&piece.alive[right / 32], ~(1u << right % 32));
            }
            __syncwarp();
            if (!table.is_in_order) break;
        }
        __syncwarp();
        // What is new, or has a new one behind it, is looked up: each by its own lane, so that one wait is enough.
        for (u32 at = lane; at < end; at += 32) {
            if (!(piece.alive[at / 32] >> lane & 1)) continue;
            u32 right = piece.next[at];
            if (piece.merged_in[at] != round && (right == SIZE || piece.merged_in[right] != round)) continue;
            Merge merge = right < SIZE ? merge_of(table, piece.ids[at], piece.ids[right]) : Merge{NOTHING, 0};
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
