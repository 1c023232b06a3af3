// Replace the ids of new words that are one token although the merges do not produce this token (Llama 3's
// ignore_merges). Each thread handles one word.
//
// This kernel is launched only for a tokenizer with such words. merge_tables.py creates their table. Merging these
// words is wasted work, but the words are few.
#include "word_table.cuh"

// Return the id of an exception, or NOTHING if the word is not an exception.
__device__ inline u32 exception_of(const Engine& engine, const u8* word, u32 length) {
    u64 hash = hashed(word, length);
    for (u32 slot = (u32)(hash >> 32);; slot++) {
        Exception entry = engine.exceptions[slot & engine.exceptions_mask];
        if (entry.num_bytes == 0) return NOTHING;
        if (entry.hash != (u32)hash || entry.num_bytes != length) continue;
        if (are_same(word, engine.exception_bytes + entry.begin, length)) return entry.id;
    }
}

__device__ inline u32 slot_of_new_word(const Engine& engine, u32 number) {
    u32 num_short = engine.counters->num_short, num_medium = engine.counters->num_medium;
    if (number < num_short) return engine.short_words[number];
    number -= num_short;
    return number < num_medium ? engine.medium_words[number] : engine.joins[number - num_medium].slot;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    apply_exceptions(const Engine* __restrict__ the_engine, const Chunk* __restrict__ the_chunk) {
    const Engine& engine = *the_engine;
    const Chunk& chunk = *the_chunk;
    const Counters& counters = *engine.counters;
    u32 num_new = counters.num_short + counters.num_medium + counters.num_joins;
    for (u32 number = blockIdx.x * THREADS + threadIdx.x; number < num_new; number += gridDim.x * THREADS) {
        Entry* entry = &engine.entries[slot_of_new_word(engine, number)];
        u64 high = entry->high, bytes[2] = {~entry->low, high};
        u32 length = length_of(high);
        if (length > engine.longest_exception) continue;
        u32 id = exception_of(engine, is_long_key(high) ? bytes_of(engine, chunk, high) : (const u8*)bytes, length);
        if (id != NOTHING) entry->value = one_id(id);
    }
}
