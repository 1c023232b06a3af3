// The part of CUDA that the kernels need, implemented on a CPU, for tests on machines without a GPU.
//
// Blocks run one after the other. The threads of a block are fibers that switch at barriers and warp operations. The
// source of the kernels is unchanged. Tests with this header cannot detect races or measure the time on a GPU.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

using std::max;
using std::min;

#define __global__
#define __device__
#define __noinline__ __attribute__((noinline))
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__

struct uint4 {
    unsigned x, y, z, w;
} __attribute__((aligned(16)));
struct ulonglong2 {
    unsigned long long x, y;
} __attribute__((aligned(16)));
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

struct Index {
    unsigned x;
};
static Index threadIdx, blockIdx, gridDim;

namespace fibers {
constexpr unsigned STACK = 256 << 10, MAX_THREADS = 1024;
struct Barrier {
    unsigned arrived = 0, phase = 0;
};
struct Warp {
    Barrier barrier;
    unsigned long long values[2][32];
};
// A fiber is created once and reused for all blocks. Fibers switch with longjmp, because swapcontext makes two system
// calls at each switch, and these calls took half of the total time.
struct Fiber {
    jmp_buf position;
    ucontext_t begin;
    bool is_begun = false, is_over = false;
};
static jmp_buf scheduler;
static std::vector<Fiber> threads;
static std::vector<Warp> warps;
static Barrier block;
static unsigned num_threads;
static void (*body)();

inline void hand_over() {
    if (!_setjmp(threads[threadIdx.x].position)) _longjmp(scheduler, 1);
}

inline void arrive(Barrier& barrier, unsigned expected) {
    unsigned phase = barrier.phase;
    if (++barrier.arrived == expected) {
        barrier.arrived = 0;
        barrier.phase++;
        return;
    }
    while (barrier.phase == phase) hand_over();
}

// Passes a value to the other lanes of the warp, and returns the values of all lanes.
inline const unsigned long long* exchange(unsigned long long mine) {
    Warp& warp = warps[threadIdx.x / 32];
    unsigned long long* values = warp.values[warp.barrier.phase % 2];
    values[threadIdx.x % 32] = mine;
    arrive(warp.barrier, 32);
    return values;
}

inline void run_bodies() {
    while (true) {
        body();
        threads[threadIdx.x].is_over = true;
        hand_over();
    }
}

inline void make_fibers() {
    threads.resize(MAX_THREADS);
    for (Fiber& fiber : threads) {
        getcontext(&fiber.begin);
        fiber.begin.uc_stack.ss_sp = malloc(STACK);
        fiber.begin.uc_stack.ss_size = STACK;
        makecontext(&fiber.begin, run_bodies, 0);
    }
}

// Runs a fiber until it calls hand_over.
__attribute__((noinline)) inline void run(Fiber& fiber) {
    if (_setjmp(scheduler)) return;
    if (fiber.is_begun) _longjmp(fiber.position, 1);
    fiber.is_begun = true;
    setcontext(&fiber.begin);
}

inline void run_block() {
    if (threads.empty()) make_fibers();
    for (unsigned thread = 0; thread < num_threads; thread++) threads[thread].is_over = false;
    warps.assign((num_threads + 31) / 32, {});
    block = {};
    for (unsigned left = num_threads; left > 0;) {
        left = 0;
        for (unsigned thread = 0; thread < num_threads; thread++) {
            if (threads[thread].is_over) continue;
            threadIdx.x = thread;
            run(threads[thread]);
            left += !threads[thread].is_over;
        }
    }
}
}  // namespace fibers

inline void __syncthreads() { fibers::arrive(fibers::block, fibers::num_threads); }
inline void __syncwarp() { fibers::exchange(0); }
template <class T>
inline T __shfl_sync(unsigned, T value, unsigned lane) {
    return (T)fibers::exchange(value)[lane % 32];
}
template <class T>
inline T __shfl_xor_sync(unsigned, T value, unsigned mask) {
    unsigned lane = threadIdx.x % 32;
    return (T)fibers::exchange(value)[lane ^ mask];
}
template <class T>
inline T __shfl_up_sync(unsigned, T value, unsigned distance) {
    unsigned lane = threadIdx.x % 32;
    return (T)fibers::exchange(value)[lane >= distance ? lane - distance : lane];
}
inline unsigned __ballot_sync(unsigned, bool is_set) {
    const unsigned long long* values = fibers::exchange(is_set);
    unsigned mask = 0;
    for (unsigned lane = 0; lane < 32; lane++) mask |= (unsigned)(values[lane] != 0) << lane;
    return mask;
}
inline unsigned __reduce_min_sync(unsigned, unsigned value) {
    const unsigned long long* values = fibers::exchange(value);
    return (unsigned)*std::min_element(values, values + 32);
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(unsigned x) { return __builtin_ffs((int)x); }
inline int __ffsll(unsigned long long x) { return __builtin_ffsll((long long)x); }
inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
template <class T>
inline T __ldg(const T* at) {
    return *at;
}
template <class T, class U>
inline T atomicAdd(T* at, U more) {
    T old = *at;
    *at += (T)more;
    return old;
}
template <class T>
inline T atomicOr(T* at, T bits) {
    T old = *at;
    *at |= bits;
    return old;
}
template <class T>
inline T atomicAnd(T* at, T bits) {
    T old = *at;
    *at &= bits;
    return old;
}
template <class T>
inline T atomicMin(T* at, T value) {
    T old = *at;
    *at = min(old, value);
    return old;
}
template <class T>
inline T atomicCAS(T* at, T expected, T value) {
    T old = *at;
    if (old == expected) *at = value;
    return old;
}
