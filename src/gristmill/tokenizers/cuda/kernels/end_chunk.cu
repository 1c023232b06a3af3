// Finish a chunk: write the id offsets of the documents and the result, and decide whether to clear the word table.
#include "engine.cuh"

__device__ inline u32 ids_up_to(const Engine& engine, u32 num_tiles) {
    return num_tiles ? (u32)engine.tile_totals[num_tiles - 1] : 0;
}

// Return the number of ids before a position. emit has replaced the code of each word with the number of ids before the
// word in its tile.
__device__ inline u32 ids_before(const Engine& engine, const Chunk& chunk, u32 position) {
    u32 tile = position / TILE, group = position / GROUP;
    u32 word = engine.words_before[group] + __popc(engine.starts[group] & ((1u << position % GROUP) - 1));
    if (position >= chunk.num_bytes || word >= engine.words_per_tile[tile]) return ids_up_to(engine, tile + 1);
    return ids_up_to(engine, tile) + engine.codes[(u64)tile * TILE + word];
}

extern "C" __global__ void end_chunk(const Engine* __restrict__ the_engine, const Chunk* __restrict__ the_chunk) {
    const Engine& engine = *the_engine;
    const Chunk& chunk = *the_chunk;
    u32 thread = blockIdx.x * THREADS + threadIdx.x, num_threads = gridDim.x * THREADS;
    for (u32 document = thread; document < chunk.num_documents; document += num_threads)
        chunk.id_offsets[document] = ids_before(engine, chunk, chunk.documents[document]);
    if (thread == 0) {
        const Counters& counters = *engine.counters;
        u32 num_new = counters.num_short + counters.num_medium + counters.num_joins;
        engine.state->num_words += num_new;
        // A chunk needs at most half of the pool and half of the arena. If less is free, the table is cleared.
        const TableState& state = *engine.state;
        bool is_half_full = state.pool_used > engine.pool_ids / 2 || state.arena_used > engine.arena_bytes / 2;
        if (engine.state->num_words > engine.max_words || is_half_full) engine.state->must_clear = 1;
        *chunk.result = Result{ids_up_to(engine, chunk.num_tiles), num_new, engine.state->num_clears};
    }
}
