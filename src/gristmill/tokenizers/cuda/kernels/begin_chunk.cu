// Before a chunk: documents become bits, tiles learn which is their first, and a table that is too full is emptied.
#include "engine.cuh"

// The document mask, counters and tile totals have been zeroed.
extern "C" __global__ void begin_chunk(const Engine* __restrict__ the_engine, const Chunk* __restrict__ the_chunk) {
    const Engine& engine = *the_engine;
    const Chunk& chunk = *the_chunk;
    u32 thread = blockIdx.x * THREADS + threadIdx.x, num_threads = gridDim.x * THREADS;
    for (u32 at = thread; at <= chunk.num_documents; at += num_threads) {
        u32 position = at < chunk.num_documents ? chunk.documents[at] : chunk.num_bytes;
        atomicOr(&engine.document_mask[position / 32], 1u << position % 32);
    }
    for (u32 tile = thread; tile <= chunk.num_tiles; tile += num_threads) {
        u32 low = 0, high = chunk.num_documents;
        while (low < high) {
            u32 middle = (low + high) / 2;
            if ((u64)chunk.documents[middle] < (u64)tile * TILE) low = middle + 1;
            else high = middle;
        }
        engine.first_documents[tile] = low;
    }
    if (engine.state->must_clear)  // end_chunk says so, nobody else writes it while this runs
        for (u32 slot = thread; slot <= engine.slot_mask; slot += num_threads) {
            engine.entries[slot].low = engine.entries[slot].high = 0;
            // A word that comes twice in the next chunk is asked for its ids before it has any: not for another's.
            engine.entries[slot].value.all = make_uint4(0, 0, 0, 0);
        }
}
