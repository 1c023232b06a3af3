// Write the ids of all words, in order, in one pass over the tiles (a scan with decoupled look-back).
//
// A block counts the ids of its tile from the codes. The offset of these ids in the output depends on all earlier
// tiles. The block publishes its count. Then it goes back over the earlier tiles and adds up their counts, until it
// reaches a tile that has published its running total. Blocks take tiles in order, so a block only waits for blocks
// that have started.
//
//   tile_totals[t]   0 = not known yet, 1 << 62 | ids of tile t, 2 << 62 | ids of all tiles up to and including t
#include "engine.cuh"

constexpr u64 OWN = 1ull << 62, WITH_ALL_BEFORE = 2ull << 62, VALUE_BITS = (1ull << 62) - 1;
constexpr u32 WORDS_AT_ONCE = 4;
constexpr u32 COPIED_BY_ONE = 32;  // maximum number of ids that one thread copies from the pool; a warp copies more

struct FromPool {
    u32 to, from, num;
};

// Flag the document of a word whose ids did not fit into the pool. The document is searched for only in this rare case.
__device__ __noinline__ void flag_document_of_word(const Engine& engine, const Chunk& chunk, u32 tile, u32 word) {
    for (u32 group = tile * GROUPS; group < (tile + 1) * GROUPS; group++) {
        u32 starts = engine.starts[group], first = engine.words_before[group];
        if (word < first || word - first >= __popc(starts)) continue;
        for (; first < word; first++) starts &= starts - 1;
        flag_document(chunk, group * GROUP + __ffs(starts) - 1);
        return;
    }
}

// Return the number of ids before a tile, with the first warp of a block.
__device__ inline u32 ids_before_tile(const Engine& engine, u32 tile, u32 num_ids) {
    volatile u64* totals = engine.tile_totals;
    u32 lane = threadIdx.x;
    if (lane == 0) totals[tile] = (tile == 0 ? WITH_ALL_BEFORE : OWN) | num_ids;
    u64 sum = 0;
    for (long long nearest = (long long)tile - 1; nearest >= 0; nearest -= 32) {
        u64 total = WITH_ALL_BEFORE;  // 0 ids before the first tile
        if (nearest - lane >= 0) do total = totals[nearest - lane];
            while (total >> 62 == 0);
        u32 known = __ballot_sync(ALL, total >> 62 == 2), first = known ? __ffs(known) - 1 : 31;
        u64 value = lane <= first ? total & VALUE_BITS : 0;
        for (u32 distance = 16; distance; distance /= 2) value += __shfl_xor_sync(ALL, value, distance);
        sum += value;
        if (known) break;
    }
    if (lane == 0 && tile > 0) totals[tile] = WITH_ALL_BEFORE | (sum + num_ids);
    return (u32)sum;
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    emit(const Engine* __restrict__ the_engine, const Chunk* __restrict__ the_chunk) {
    const Engine& engine = *the_engine;
    const Chunk& chunk = *the_chunk;
    __shared__ __align__(16) token_t staged[TILE + 16];
    __shared__ FromPool copies[TILE / COPIED_BY_ONE + 1];
    __shared__ u32 scratch[THREADS / 32], the_tile, num_copies, tile_offset;
    __shared__ FromPool last;  // the last word of a tile may be longer than the tile
    if (threadIdx.x == 0) {
        the_tile = atomicAdd(&engine.counters->next_tile, 1u);
        num_copies = 0;
        last.num = 0;
    }
    __syncthreads();
    u32 tile = the_tile, num_staged = 0;
    if (tile >= chunk.num_tiles) return;
    u32 num_words = engine.words_per_tile[tile];
    u32* codes = engine.codes + (u64)tile * TILE;
    bool has_documents = engine.first_documents[tile] < engine.first_documents[tile + 1];

    for (u32 base = 0; base < num_words; base += THREADS * WORDS_AT_ONCE) {
        u32 word = base + threadIdx.x * WORDS_AT_ONCE, num[WORDS_AT_ONCE], sum = 0;
        uint4 four = word < num_words ? *(const uint4*)(codes + word) : make_uint4(0, 0, 0, 0);
        u32 code[WORDS_AT_ONCE] = {four.x, four.y, four.z, four.w};
        Value value[WORDS_AT_ONCE];
#pragma unroll
        for (u32 at = 0; at < WORDS_AT_ONCE; at++) {
            if (word + at >= num_words) code[at] = NO_IDS;
            if ((code[at] & KIND) == AT_SLOT) value[at].all = engine.entries[code[at]].value.all;
        }
#pragma unroll
        for (u32 at = 0; at < WORDS_AT_ONCE; at++) {
            u32 kind = code[at] & KIND;
            num[at] = kind == ONE_ID ? 1 : kind == TWO_BYTES ? 2 : 0;
            if (kind == AT_SLOT) {
                bool is_pooled = value[at].item[0] == POOLED;
                num[at] = is_pooled ? value[at].word[2] : value[at].item[0];
                if (is_pooled && value[at].word[3]) flag_document_of_word(engine, chunk, tile, word + at);
                if (is_pooled && word + at == num_words - 1) {
                    last = FromPool{0, value[at].word[1], num[at]};
                    num[at] = 0;
                }
            }
            sum += num[at];
        }
        u32 total, to = num_staged + sum_before(sum, &total, scratch);
#pragma unroll
        for (u32 at = 0; at < WORDS_AT_ONCE; at++) {
            u32 kind = code[at] & KIND;
            if (kind == ONE_ID) staged[to] = (token_t)(code[at] & ~KIND);
            if (kind == TWO_BYTES) {
                staged[to] = (token_t)engine.byte_ids[code[at] & 0xFF];
                staged[to + 1] = (token_t)engine.byte_ids[code[at] >> 8 & 0xFF];
            }
            if (kind == AT_SLOT && value[at].item[0] != POOLED) {
#pragma unroll
                for (u32 number = 0; number < INLINE; number++)
                    if (number < num[at]) staged[to + number] = value[at].item[number + 1];
            } else if (kind == AT_SLOT && num[at] > COPIED_BY_ONE) {
                copies[atomicAdd(&num_copies, 1u)] = FromPool{to, value[at].word[1], num[at]};
            } else if (kind == AT_SLOT) {
                for (u32 number = 0; number < num[at]; number++)
                    staged[to + number] = engine.pool[value[at].word[1] + number];
            }
            // Replace the code with the number of ids before this word in the tile, which end_chunk needs.
            if (has_documents && word + at < num_words) codes[word + at] = to;
            to += num[at];
        }
        num_staged += total;
    }
    __syncthreads();
    u32 num_ids = num_staged + last.num;
    if (threadIdx.x < 32) {
        u32 found = ids_before_tile(engine, tile, num_ids);
        if (threadIdx.x == 0) tile_offset = found;
    }
    for (u32 number = threadIdx.x / 32; number < num_copies; number += THREADS / 32)
        for (u32 at = threadIdx.x % 32; at < copies[number].num; at += 32)
            staged[copies[number].to + at] = engine.pool[copies[number].from + at];
    __syncthreads();

    // Each thread writes eight bytes at a time, from the first address that is a multiple of eight.
    token_t* out = chunk.ids + tile_offset;
    constexpr u32 AT_ONCE = 8 / sizeof(token_t);
    u32 head = min(num_staged, (AT_ONCE - tile_offset % AT_ONCE) % AT_ONCE);
    u32 num_whole = (num_staged - head) / AT_ONCE;
    for (u32 number = threadIdx.x; number < num_whole; number += THREADS) {
        u32 from = head + number * AT_ONCE;
        u64 eight = 0;
#pragma unroll
        for (u32 at = 0; at < AT_ONCE; at++) eight |= (u64)staged[from + at] << at * 8 * sizeof(token_t);
        *(u64*)(out + from) = eight;
    }
    u32 tail = head + num_whole * AT_ONCE;
    if (threadIdx.x < head) out[threadIdx.x] = staged[threadIdx.x];
    if (threadIdx.x < num_staged - tail) out[tail + threadIdx.x] = staged[tail + threadIdx.x];
    for (u32 at = threadIdx.x; at < last.num; at += THREADS) out[num_staged + at] = engine.pool[last.from + at];
}
