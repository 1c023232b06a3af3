// The kernels, compiled for a CPU, and a function that launches a kernel by name.
#include "cuda_on_cpu.h"

#include "all.cu"

static const Engine* the_engine;
static const Chunk* the_chunk;

#define KERNELS(each) \
    each(begin_chunk) each(word_starts) each(look_up_words) each(look_up_long_words) each(merge_words) \
        each(merge_windows) each(join_windows) each(apply_exceptions) each(emit) each(end_chunk)

extern "C" int launch(const char* name, unsigned num_blocks, unsigned num_threads, const Engine* engine,
                      const Chunk* chunk) {
    void (*body)() = nullptr;
#define NAMED(kernel) \
    if (!strcmp(name, #kernel)) body = [] { kernel(the_engine, the_chunk); };
    KERNELS(NAMED)
    if (!body) return 1;
    the_engine = engine;
    the_chunk = chunk;
    fibers::body = body;
    fibers::num_threads = num_threads;
    gridDim.x = num_blocks;
    for (blockIdx.x = 0; blockIdx.x < num_blocks; blockIdx.x++) fibers::run_block();
    return 0;
}

extern "C" void sizes(unsigned* out) {
    out[0] = sizeof(Engine);
    out[1] = sizeof(Chunk);
    out[2] = sizeof(Result);
    out[3] = sizeof(Counters);
    out[4] = sizeof(TableState);
    out[5] = sizeof(Entry);
}
