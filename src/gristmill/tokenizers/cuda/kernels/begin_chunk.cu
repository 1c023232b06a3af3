// Prepare a chunk: mark the starts of documents, find the first document of each tile, and clear a full word table.
#include "engine.cuh"

// The host has zeroed the document mask, the counters and the tile totals.
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
    if (engine.state->must_clear)  // set by the previous chunk, and not written while this kernel runs
        for (u32 slot = thread; slot <= engine.slot_mask; slot += num_threads) {
            engine.entries[slot].low = engine.entries[slot].high = 0;
            // If a new word occurs twice in a chunk, its entry is read before its ids are known. The entry must not
            // contain the ids of an earlier word.
            engine.entries[slot].value.all = make_uint4(0, 0, 0, 0);
        }
}
