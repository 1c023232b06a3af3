// The table of words in GPU memory: open addressing, with one compare-and-swap to claim an entry.
//
// Separate kernels look up words and write their ids, so lookups and writes never overlap. During lookups, an entry
// changes only once, from empty to a key (low is never 0). A read that is too early finds an empty entry but never a
// wrong key, and the compare-and-swap then returns the actual key.
#pragma once
#include "engine.cuh"

__device__ inline u64 mixed(u64 first, u64 second) {
    u64 hash = (first ^ second * 0x9E3779B97F4A7C15ull) * 0xFF51AFD7ED558CCDull;
    return hash ^ hash >> 32;
}

// Claim the entry if it is empty. Return the high half of the entry, or 0 if the low half belongs to a different key.
// The high half of a claimed entry is `high`.
__device__ inline u64 take(Entry* entry, u64 low, u64 high, bool* is_new) {
    u64 there = atomicCAS(&entry->low, 0ull, low);
    *is_new = there == 0;
    if (there == 0) {
        *(volatile u64*)&entry->high = high;
        return high;
    }
    if (there != low) return 0;
    u64 found;
    do found = *(volatile u64*)&entry->high;
    while (found == 0);
    return found;
}

// Load eight bytes from any address with two aligned loads, which also read up to seven bytes before and after.
__device__ inline u64 eight_bytes(const u8* at) {
    const u64* aligned = (const u64*)((u64)at & ~7ull);
    u32 shift = (u32)((u64)at & 7) * 8;
    return shift ? aligned[0] >> shift | aligned[1] << (64 - shift) : aligned[0];
}

// Load bytes [at, at + 8) of a word, with zeros after its end.
__device__ inline u64 eight_of(const u8* word, u32 length, u32 at) {
    u64 eight = eight_bytes(word + at);
    return at + 8 <= length ? eight : eight & ((1ull << 8 * (length - at)) - 1);
}

__device__ inline bool are_same(const u8* first, const u8* second, u32 length) {
    u64 difference = 0;
    for (u32 at = 0; at < length; at += 8) difference |= eight_of(first, length, at) ^ eight_of(second, length, at);
    return difference == 0;
}

__device__ inline u64 hashed(const u8* word, u32 length) {  // hash_word in merge_tables.py computes the same
    u64 hash = length;
    for (u32 at = 0; at < length; at += 8) hash = mixed(hash, eight_of(word, length, at)) * 0x9E3779B97F4A7C15ull;
    return hash;
}

// The inverted bytes are never 0 in a valid document, because UTF-8 never contains the byte 0xFF.
__device__ inline u64 short_low(u64 bytes) { return ~bytes ? ~bytes : 1; }
__device__ inline u64 long_key(u64 kind, u32 length, u64 where) { return kind << 56 | (u64)length << 32 | where; }
__device__ inline bool is_long_key(u64 high) { return high >> 56 >= IN_ARENA; }
__device__ inline u32 length_of(u64 high) {
    return is_long_key(high) ? (u32)(high >> 32) & 0xFFFFFF : (u32)(high >> 56);
}
__device__ inline const u8* bytes_of(const Engine& engine, const Chunk& chunk, u64 high) {
    return (high >> 56 == IN_TEXT ? chunk.text : engine.arena) + (u32)high;
}

__device__ inline u32 windows_of(u32 length) {
    return length <= WINDOW ? 1 : (length - WINDOW + STRIDE - 1) / STRIDE + 1;
}

// Return the code of a word. If the entry already has the only id of the word, the code contains this id, so that emit
// does not need to read the table.
__device__ inline u32 code_of(u32 slot, const Value& value) {
    return value.item[0] == 1 ? ONE_ID | value.item[1] : AT_SLOT | slot;
}

// Reserve space for ids in the pool. Return its offset, or NOTHING if the pool is full.
__device__ inline u32 take_pool(const Engine& engine, u32 num_ids) {
    u32 at = atomicAdd(&engine.state->pool_used, num_ids);
    if (at + (u64)num_ids <= engine.pool_ids) return at;
    engine.state->must_clear = 1;
    return NOTHING;
}

// Reserve space for the bytes of a word, in multiples of eight. Return its offset, or all ones if the arena is full.
// In that case the table is cleared after the chunk, before any lookup needs the bytes.
__device__ inline u64 take_arena(const Engine& engine, u32 length) {
    u64 num_bytes = (length + 7) & ~7u, at = atomicAdd(&engine.state->arena_used, num_bytes);
    if (at + num_bytes <= engine.arena_bytes) return at;
    engine.state->must_clear = 1;
    return ~0ull;
}

__device__ inline Value one_id(u32 id) {
    Value value = {};
    value.item[0] = 1;
    value.item[1] = (token_t)id;
    return value;
}

__device__ inline Value no_room() {
    Value value;
    value.item[0] = POOLED;
    value.word[1] = value.word[2] = 0;
    value.word[3] = 1;
    return value;
}

__device__ inline Value pooled(u32 at, u32 num_ids) {
    Value value;
    value.word[0] = NOTHING;
    value.word[1] = at;
    value.word[2] = num_ids;
    value.word[3] = 0;
    return value;
}
