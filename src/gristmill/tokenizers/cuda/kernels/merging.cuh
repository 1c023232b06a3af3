// Merge byte pairs with one warp: up to WINDOW bytes in registers, or up to STEP bytes in shared memory.
//
// The library `tokenizers` merges the pair with the lowest rank, leftmost first, until no pair can be merged.
//
// Merges are in order if each merge that uses a token ranks after all merges that produce the token.
// MergeTables.is_in_order records this. If merges are in order, a merge never creates a pair with a lower rank, so one
// round merges all pairs with the lowest rank from left to right. If merges are not in order, a round merges one pair.
//
//   l o w e r      round 1, rank of (l, o): 3, (e, r): 5      ->  lo w e r
//                  round 2, rank of (e, r): 5                 ->  lo w er
//   a a a          (a, a) at 0 and at 1: the pair at 0 takes the second a, so the pair at 1 no longer exists  ->  aa a
#pragma once
#include "word_table.cuh"

// Fields of the engine that the lookup of a merge needs, in registers.
struct MergeTable {
    const uint4* entries;
    u32 shift, mask, is_in_order;
};

__device__ inline MergeTable merge_table(const Engine& engine) {
    return MergeTable{engine.merges, engine.merges_shift, engine.merges_mask, engine.is_in_order};
}

struct Merge {
    u32 rank, product;  // the rank is NOTHING if the pair has no merge
};

__device__ inline Merge merge_of(const MergeTable& table, u32 left, u32 right) {
    u64 pair = (u64)left << 21 | right;
    u32 slot = (u32)(pair * 0x9E3779B97F4A7C15ull >> table.shift);
    for (;; slot = (slot + 1) & table.mask) {
        uint4 entry = __ldg(&table.entries[slot]);
        bool is_found = entry.x == (u32)pair && entry.y == (u32)(pair >> 32);
        if (is_found || entry.z == NOTHING) return Merge{entry.z, entry.w};
    }
}

// Up to 64 tokens of a window. Lane n has the tokens that start at bytes n and n + 32.
struct Tokens {
    u64 alive;  // one bit per byte: a token starts here; the same in all lanes
    u32 low, high;
};

__device__ inline u64 lowest_bit(u64 mask) { return mask & (0 - mask); }
__device__ inline u64 bits_above(u64 mask, u32 at) { return at >= 63 ? 0 : mask & ~0ull << (at + 1); }
__device__ inline bool has_bit(u64 mask, u32 at) { return mask >> at & 1; }

// Return the merge of the token at `at` with the next token, which starts at the lowest bit of `above`. `known` is the
// result of the previous round, which is still valid if neither token is in `heads`.
__device__ inline Merge looked_up(const MergeTable& table, u64 alive, u64 heads, u32 at, u64 above, u32 mine, u32 right,
                                  Merge known) {
    if (!has_bit(alive, at)) return Merge{NOTHING, 0};
    if (!has_bit(heads, at) && !(lowest_bit(above) & heads)) return known;
    return above ? merge_of(table, mine, right) : Merge{NOTHING, 0};
}

__device__ inline Tokens merged_window(const Engine& engine, const u8* text, u32 length) {
    const MergeTable table = merge_table(engine);
    u32 lane = threadIdx.x % 32;
    Tokens tokens = {length == WINDOW ? ~0ull : (1ull << length) - 1, 0, 0};
    if (lane < length) tokens.low = engine.byte_ids[text[lane]];
    if (lane + 32 < length) tokens.high = engine.byte_ids[text[lane + 32]];
    Merge low = {NOTHING, 0}, high = {NOTHING, 0};
    u64 heads = ~0ull;  // tokens that the last round created; only pairs with such a token are looked up
    while (true) {
        u64 above_low = bits_above(tokens.alive, lane), above_high = bits_above(tokens.alive, lane + 32);
        u32 next_low = (u32)__ffsll(above_low) - 1, next_high = (u32)__ffsll(above_high) - 1;
        u32 right_low = __shfl_sync(ALL, tokens.low, next_low % 32);
        u32 right_far = __shfl_sync(ALL, tokens.high, next_low % 32);
        u32 right_high = __shfl_sync(ALL, tokens.high, next_high % 32);
        u32 right = next_low < 32 ? right_low : right_far;
        low = looked_up(table, tokens.alive, heads, lane, above_low, tokens.low, right, low);
        high = looked_up(table, tokens.alive, heads, lane + 32, above_high, tokens.high, right_high, high);

        u32 lowest = __reduce_min_sync(ALL, min(low.rank, high.rank));
        if (lowest == NOTHING) return tokens;
        u64 pairs = __ballot_sync(ALL, low.rank == lowest) | (u64)__ballot_sync(ALL, high.rank == lowest) << 32;
        for (heads = 0; pairs && (table.is_in_order || heads == 0);) {
            u64 head = lowest_bit(pairs), right = lowest_bit(tokens.alive & ~(head | (head - 1)));
            tokens.alive ^= right;
            pairs &= ~(head | right);
            heads |= head;
        }
        if (has_bit(heads, lane)) tokens.low = low.product;
        if (has_bit(heads, lane + 32)) tokens.high = high.product;
    }
}

__device__ inline void write_tokens(const Tokens& tokens, token_t* out) {
    u32 lane = threadIdx.x % 32, before = __popc((u32)tokens.alive & ((1u << lane) - 1));
    if (has_bit(tokens.alive, lane)) out[before] = (token_t)tokens.low;
    before = __popc((u32)tokens.alive) + __popc((u32)(tokens.alive >> 32) & ((1u << lane) - 1));
    if (has_bit(tokens.alive, lane + 32)) out[before] = (token_t)tokens.high;
}

// Up to STEP tokens, each at the index of its first byte. The token after token i is at next[i], which is STEP for the
// last token. ranks[i] and products[i] describe the merge of token i with the next token. merged_in[i] is the round
// that produced token i, or 0.
struct Piece {
    u32 ids[STEP], ranks[STEP], products[STEP];
    u16 next[STEP], merged_in[STEP];
    u32 alive[STEP / 32];
};

// Return the first set bit after `at` in a mask of STEP bits, or STEP if there is none.
__device__ inline u32 next_of(const u32* masks, u32 at) {
    u32 number = (at + 1) / 32;
    if (number == STEP / 32) return STEP;
    u32 mask = masks[number] & ALL << (at + 1) % 32;
    while (mask == 0) {
        if (++number == STEP / 32) return STEP;
        mask = masks[number];
    }
    return number * 32 + __ffs(mask) - 1;
}

// Return the last set bit before `at` in a mask of STEP bits, or NOTHING if there is none.
__device__ inline u32 last_of(const u32* masks, u32 at) {
    u32 number = at / 32, mask = masks[number] & ((1u << at % 32) - 1);
    while (mask == 0) {
        if (number-- == 0) return NOTHING;
        mask = masks[number];
    }
    return number * 32 + 31 - __clz(mask);
}

// Merge a piece, with all lanes of a warp. Afterwards, a bit of `alive` marks the start of each token, and `ids` has
// the id of the token at the same index.
__device__ inline void merge_piece(const Engine& engine, Piece& piece, const u8* text, u32 length) {
    const MergeTable table = merge_table(engine);
    u32 lane = threadIdx.x % 32, end = (length + 31) / 32 * 32;
    for (u32 at = lane; at < STEP; at += 32) {
        if (at < length) piece.ids[at] = engine.byte_ids[text[at]];
        piece.next[at] = (u16)(at + 1 < length ? at + 1 : STEP);
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

        // Merge the pairs with this rank from left to right. Two pairs can share a token only if all three tokens are
        // the same ("a a a"). In this case the left pair takes the token, and the other pair no longer exists.
        u32 taken = NOTHING;  // the right token of the last merged pair
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
        // Look up the pairs with a new token. Each lane looks up its own pairs, so that all loads overlap.
        for (u32 at = lane; at < end; at += 32) {
            if (!(piece.alive[at / 32] >> lane & 1)) continue;
            u32 right = piece.next[at];
            if (piece.merged_in[at] != round && (right == STEP || piece.merged_in[right] != round)) continue;
            Merge merge = right < STEP ? merge_of(table, piece.ids[at], piece.ids[right]) : Merge{NOTHING, 0};
            piece.ranks[at] = merge.rank;
            piece.products[at] = merge.product;
        }
        __syncwarp();
    }
}

__device__ inline u32 num_tokens(const Piece& piece) {
    u32 num = 0;
    for (u32 number = 0; number < STEP / 32; number++) num += __popc(piece.alive[number]);
    return num;
}

// Write the ids of the tokens that start before `end`, in order, with all lanes of a warp.
__device__ inline void write_tokens(const Piece& piece, token_t* out, u32 end = STEP) {
    u32 lane = threadIdx.x % 32, num = 0;
    for (u32 number = 0; number < STEP / 32; number++) {
        u32 alive = piece.alive[number], at = number * 32 + lane;
        if (alive >> lane & 1 && at < end) out[num + __popc(alive & ((1u << lane) - 1))] = (token_t)piece.ids[at];
        num += __popc(alive);
    }
}

// Copy the bytes of a word to the arena, for comparison in later lookups, with all lanes of a warp.
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
