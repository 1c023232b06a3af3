// Find the starts of words, as a bit mask. This file has the code that both families of patterns share.
//
// A pre-tokenizer's regex scans a text from left to right. The patterns here do not need a scan: the characters around
// a position determine whether a word starts there, so all bytes are processed in parallel. Each family's file states
// its rules. tests/support/word_starts_in_numpy.py implements the same rules, and tests compare that implementation
// with the regexes.
#pragma once
#include "characters.cuh"

// The 32 bytes of a thread, with the groups before and after them.
struct Group {
    Masks earlier, here, later;
    const u8* text;
    u32 position;  // position of the first of the 32 bytes
};

__device__ u32 starts_in(const Engine& engine, const Chunk& chunk, const Group& group);  // defined by each family

// Convert a byte of a contraction to lowercase if the pattern ignores case.
__device__ inline u32 lower(u32 byte) { return IGNORES_CASE && byte - 'A' < 26u ? byte | 32 : byte; }

// Return the number of bytes of the contraction that starts with this apostrophe, or 0 if there is none. Bit n of
// `documents` is set if the n-th byte after the apostrophe starts another document.
//   'll -> 3, 's -> 2, 'x -> 0
__device__ inline u32 contraction(const u8* apostrophe, u64 documents) {
    u32 second = lower(apostrophe[1]), third = lower(apostrophe[2]);
    if (documents & 2) return 0;
    if (second == 's' || second == 't' || second == 'm' || second == 'd') return 2;
    if (documents & 4) return 0;
    if ((second == 'r' || second == 'v') && third == 'e') return 3;
    if (second == 'l' && third == 'l') return 3;
    // U+017F matches s in a pattern that ignores case.
    return IGNORES_CASE && second == 0xC5 && third == 0xBF ? 3 : 0;
}

// Apply contractions whose apostrophe starts a word: add a start right after each contraction, and remove all starts
// inside of it.
__device__ inline u32 with_contractions(u32 starts, u32 apostrophes, u32 earlier_apostrophes, const Group& group) {
    // A contraction that starts in the last three bytes before the group may end in the group.
    u64 left = (u64)apostrophes << 32 | (earlier_apostrophes & 0xE0000000u);
    while (left) {
        u32 at = __ffsll(left) - 1;
        left &= left - 1;
        u64 documents = both(group.earlier.document, group.here.document) >> at;
        if (at > 61) documents |= (u64)group.later.document << (64 - at);
        u32 length = contraction(group.text + (int)at - (int)GROUP, documents);
        u32 end = at + length;
        if (length == 0) continue;
        for (u32 inside = at + 1; inside < end; inside++)
            if (inside >= GROUP && inside < 2 * GROUP) starts &= ~(1u << (inside - GROUP));
        if (end >= GROUP && end < 2 * GROUP) starts |= 1u << (end - GROUP);
    }
    return starts & ~group.here.inner;
}

// Find whitespace characters that are the last of their run and followed by another character of the same document.
//   "a  b" -> 0 0 1 0        "a  " -> 0 0 0
// The code first finds the last byte of such a character, and then moves the bit to the first byte of the character.
__device__ inline u32 last_before_text(const Group& group) {
    u64 white = both(group.here.white, group.later.white), inner = both(group.here.inner, group.later.inner);
    u64 last = white & (~white & ~inner & ~both(group.here.document, group.later.document)) >> 1;
    last |= (last & inner) >> 1;
    last |= (last & inner) >> 1;
    return (u32)last;
}

extern "C" __global__ void __launch_bounds__(THREADS, 5)
    word_starts(const Engine* __restrict__ the_engine, const Chunk* __restrict__ the_chunk) {
    const Engine& engine = *the_engine;
    const Chunk& chunk = *the_chunk;
    if (blockIdx.x >= chunk.num_tiles) return;  // the grid has a block for each tile of the largest chunk
    // begin_chunk has cleared the table if must_clear was set, and no other thread uses the state now.
    if (blockIdx.x == 0 && threadIdx.x == 0 && engine.state->must_clear)
        *engine.state = TableState{0, 0, 0, 0, engine.state->num_clears + 1};
    // Masks of the same kind are contiguous, so that the threads of a warp read adjacent words.
    constexpr u32 NUM_MASKS = sizeof(Masks) / sizeof(u32) - !USES_NEWLINES;
    __shared__ u32 shared[NUM_MASKS][GROUPS + 2];
    long long tile = (long long)blockIdx.x * TILE;
    for (u32 at = threadIdx.x; at < GROUPS + 2; at += THREADS) {
        Masks masks = masks_of(engine, chunk, tile + ((long long)at - 1) * GROUP, at > 0 && at <= GROUPS);
        for (u32 number = 0; number < NUM_MASKS; number++) shared[number][at] = ((const u32*)&masks)[number];
    }
    __syncthreads();
    Group group = {};
    for (u32 number = 0; number < NUM_MASKS; number++) {
        ((u32*)&group.earlier)[number] = shared[number][threadIdx.x];
        ((u32*)&group.here)[number] = shared[number][threadIdx.x + 1];
        ((u32*)&group.later)[number] = shared[number][threadIdx.x + 2];
    }
    group.position = (u32)tile + threadIdx.x * GROUP;
    group.text = chunk.text + group.position;
    u32 starts = starts_in(engine, chunk, group);
    // The end of the chunk is marked as a start too, so that every word is followed by a start.
    if (group.position > chunk.num_bytes) starts = 0;
    else if (chunk.num_bytes - group.position < 31) starts &= (2u << (chunk.num_bytes - group.position)) - 1;
    engine.starts[group.position / GROUP] = starts;
}
