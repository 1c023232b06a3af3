// The pattern of cl100k and Llama 3, with digits in groups of three, and of Qwen 2, with single digits:
//
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// An "other" is a character that is neither a letter, a number nor whitespace.
//
// 1. Newlines right after an other belong to its word. The rest of a run of whitespace starts a word. If the rest
//    contains a newline, another word starts after the last newline. The last character of the run starts a word if it
//    is not a newline and does not end the document.
// 2. A letter starts a word unless it follows a letter, whitespace other than a newline, or a lone other. A lone other
//    follows neither an other nor a space.
// 3. An other starts a word unless it follows an other or a space.
// 4. Each number starts a word. With DIGITS_IN_THREES, only the first, fourth, seventh … number of a run does.
// 5. An apostrophe that starts a word starts a contraction if the letters of a contraction follow, such as 's. The
//    contraction is a separate word.
//
//   f(x);⏎⏎  (y12345)     f|(x|);⏎⏎|·|·(|y|123|45|)
#include "word_starts.cuh"

// Maximum distance to search for the end of a run of newlines, whitespace or digits. A document with a longer run is
// left to the CPU, because every thread would search through the same run, which takes quadratic time.
constexpr u32 FARTHEST = 4096;

// Classify the group that contains a byte outside this thread's group, for a run that extends to the byte.
__device__ inline Masks masks_of_one(const Engine& engine, const Chunk& chunk, u32 position) {
    return masks_of(engine, chunk, (long long)(position / GROUP * GROUP), false);
}

// Return true if newlines at the start of the group belong to the word of an "other" before the group. There may be
// more newlines between this "other" and the group.
__device__ inline bool absorbs_on(const Engine& engine, const Chunk& chunk, const Group& group) {
    if (!(group.earlier.newline >> 31)) return group.earlier.other() >> 31;
    if (group.position == 0) return false;
    for (u32 position = group.position - 1; group.position - position < FARTHEST; position--) {
        u8 byte = chunk.text[position];
        if (byte != '\n' && byte != '\r') return masks_of_one(engine, chunk, position).other() >> position % GROUP & 1;
        if (is_document_start(engine, position) || position == 0) return false;
    }
    flag_document(chunk, group.position);
    return false;
}

// Return true if the run of whitespace that contains `at` has a newline after `at`.
__device__ inline bool has_newline_after(const Engine& engine, const Chunk& chunk, const Group& group, u32 at) {
    u64 white = both(group.here.white, group.later.white) & ~both(group.here.document, group.later.document);
    u64 newline = both(group.here.newline, group.later.newline);
    u64 rest = ~0ull << at << 1, ends = ~white & rest;
    if (ends) return newline & rest & (ends & (0 - ends)) - 1;
    if (newline & rest) return true;
    for (u32 begin = group.position + 2 * GROUP; begin - group.position < FARTHEST; begin += GROUP) {
        if (begin >= chunk.num_bytes) return false;
        Masks masks = masks_of(engine, chunk, begin, false);
        u32 end = ~masks.white | masks.document;
        if (end) return masks.newline & (end & (0 - end)) - 1;
        if (masks.newline) return true;
    }
    flag_document(chunk, group.position + at);
    return false;
}

// Count, modulo three, the numbers before the group that belong to the run at the start of the group.
__device__ inline u32 numbers_before(const Engine& engine, const Chunk& chunk, const Group& group) {
    u32 count = 0;
    for (long long begin = (long long)group.position - GROUP; begin >= 0; begin -= GROUP) {
        Masks masks = masks_of(engine, chunk, begin, false);
        // The run is the numbers at the end of the mask, back to another character or to the start of a document.
        u32 breaks = ~masks.number, documents = masks.document;
        u32 first = breaks ? 32 - __clz(breaks) : 0;
        if (documents) first = max(first, 31u - __clz(documents));
        u32 run = first == 32 ? 0 : ~0u << first;
        count += __popc(masks.number & run & ~masks.inner);
        if (first > 0 || documents & 1) return count % 3;
        if (group.position - begin > FARTHEST) break;
        if (begin == 0) return count % 3;
    }
    if (group.position >= GROUP) flag_document(chunk, group.position);
    return 0;
}

__device__ inline u32 number_starts(const Engine& engine, const Chunk& chunk, const Group& group) {
    u32 leads = group.here.number & ~group.here.inner;
#ifdef DIGITS_IN_THREES
    if (!leads) return 0;
    u32 first_of_run = ~before(group.earlier.number, group.here.number) | group.here.document;
    u32 count = first_of_run & 1 ? 0 : numbers_before(engine, chunk, group), starts = 0;
    for (u32 left = leads; left; left &= left - 1) {
        u32 bit = left & (0 - left);
        if (first_of_run & bit) count = 0;
        if (count % 3 == 0) starts |= bit;
        count++;
    }
    return starts;
#else
    return leads;
#endif
}

__device__ u32 starts_in(const Engine& engine, const Chunk& chunk, const Group& group) {
    const Masks &earlier = group.earlier, &here = group.here;
    u32 other = here.other(), other_before = before(earlier.other(), other);
    u32 space_before = before(earlier.space, here.space), letter_before = before(earlier.letter, here.letter);
    u32 white_before = before(earlier.white, here.white), newline_before = before(earlier.newline, here.newline);

    // A word of others absorbs the complete run of newlines after it. Adding the first bit of a run carries through the
    // run and clears it.
    u32 newline = here.newline & ~here.document, absorbed = 0, last_absorbed = 0;
    if (newline || newline_before & 1) {
        last_absorbed = absorbs_on(engine, chunk, group);
        u32 first = newline & (before(0, other) | last_absorbed);
        absorbed = newline & ~(newline + first);
        if (!(earlier.newline >> 31)) last_absorbed = 0;
    }
    u32 absorbed_before = absorbed << 1 | last_absorbed;

    u32 inline_white = here.white & ~here.newline & ~here.inner;
    u32 starts = here.document | (here.white & ~absorbed & (~white_before | absorbed_before));
    starts |= inline_white & last_before_text(group);
    for (u32 left = inline_white & newline_before & ~starts; left; left &= left - 1) {
        u32 at = __ffs(left) - 1;
        if (!has_newline_after(engine, chunk, group, at)) starts |= 1u << at;
    }

    // Mark all bytes of each lone other, also of one that starts in the previous group.
    u32 free_other = other & ~here.inner & ((~other_before & ~space_before) | here.document);
    u32 earlier_other = earlier.other();
    u32 earlier_alone = (~before(0, earlier_other) & ~before(0, earlier.space)) | earlier.document;
    u32 earlier_free = earlier_other & ~earlier.inner & earlier_alone;
    u64 lone = both(earlier_free, free_other), inner = both(earlier.inner, here.inner);
    for (u32 more = 1; more < 4; more++) lone |= lone << 1 & inner;
    u32 lone_before = (u32)(lone >> 31);
    starts |= here.letter & ~here.inner & ~letter_before & ~(white_before & ~newline_before) & ~lone_before;
    starts |= free_other | number_starts(engine, chunk, group);
    u32 apostrophes = here.apostrophe & free_other, earlier_apostrophes = earlier.apostrophe & earlier_free;
    return with_contractions(starts & ~here.inner, apostrophes, earlier_apostrophes, group);
}
