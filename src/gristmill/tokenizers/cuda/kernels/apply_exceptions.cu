// New words that are one token though merges do not make it (Llama 3's ignore_merges) -> that token, a thread each.
//
// Launched only for a tokenizer that has some; exceptions.py makes the table. Merges have been for nothing then: such
// words are few.
#include "word_table.cuh"

// Its id, or NOTHING.
__device__ inline u32 exception_of(const Engine& engine, const u8* word, u32 length) {
    u64 hash = hashed(word, length);
    for (u32 slot = (u32)(hash >> 32);; slot++) {
        Exception there = engine.exceptions[slot & engine.exceptions_mask];
        if (there.num_bytes == 0) return NOTHING;
        if (there.hash != (u32)hash || there.num_bytes != length) continue;
        if (are_same(word, engine.exception_bytes + there.begin, length)) return there.id;
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
