// Classify the characters of 32 bytes at a time, as bit masks.
//
// Every byte of a character has the character's class, and all bytes but the first are also `inner`. The class of the
// preceding character is therefore the class of the preceding byte.
//
//   text      a  b     é        '  s
//   letter    1  1  0  1  1  0  0  1
//   inner     0  0  0  0  1  0  0  0
#pragma once
#include "engine.cuh"

#ifdef FAMILY_CL100K
constexpr bool USES_NEWLINES = true;
#else
constexpr bool USES_NEWLINES = false;
#endif
constexpr u8 OTHER = 0, LETTER = 1, NUMBER = 2, WHITESPACE = 3, LEFT_TO_CPU = 5;  // as in character_classes.py

struct Masks {
    u32 letter, number, white, space, apostrophe, inner, document, newline;  // newline only if USES_NEWLINES
    __device__ u32 other() const { return ~(letter | number | white); }
};

// Set the high bit of each byte that is in [low, high]. All bytes must be below 0x80.
//   in_range('a' 'B' '7' ' ', 'a', 'z') -> 80 00 00 00
__device__ inline u32 in_range(u32 four, u32 low, u32 high) {
    return (four + (0x80 - low) * 0x01010101u) & ~(four + (0x7F - high) * 0x01010101u) & 0x80808080u;
}

// Gather the high bits of four bytes into four bits. The product moves bits 7, 15, 23 and 31 to 28, 29, 30 and 31.
__device__ inline u32 four_bits(u32 high_bits) { return (high_bits >> 7) * 0x10204080u >> 28; }

__device__ inline Masks masks_of_ascii(const u32* words) {
    Masks masks = {};
#pragma unroll
    for (u32 at = 0; at < 8; at++) {
        u32 four = words[at], shift = 4 * at;
        u32 space = in_range(four, ' ', ' ');
        masks.letter |= four_bits(in_range(four | 0x20202020u, 'a', 'z')) << shift;
        masks.number |= four_bits(in_range(four, '0', '9')) << shift;
        masks.white |= four_bits(in_range(four, '\t', '\r') | space) << shift;
        if (USES_NEWLINES) masks.newline |= four_bits(in_range(four, '\n', '\n') | in_range(four, '\r', '\r')) << shift;
        masks.space |= four_bits(space) << shift;
        masks.apostrophe |= four_bits(in_range(four, '\'', '\'')) << shift;
    }
    return masks;
}

__device__ inline bool is_document_start(const Engine& engine, u32 position) {
    return engine.document_mask[position / 32] >> position % 32 & 1;
}

__device__ inline u8 class_of_ascii(u32 byte) {
    return (byte | 32) - 'a' < 26u            ? LETTER
           : byte - '0' < 10u                 ? NUMBER
           : byte == ' ' || byte - '\t' < 5u  ? WHITESPACE
                                              : OTHER;
}

// Decode the character that starts here. Return its number of bytes, or 0 if the bytes are not valid UTF-8.
__device__ inline u32 decode(const u8* at, u32 num_left, u32* code_point) {
    u32 first = at[0], length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
    if (length == 0 || length > num_left) return 0;
    u32 value = first & 0x7Fu >> length;
    for (u32 more = 1; more < length; more++) {
        if ((at[more] & 0xC0) != 0x80) return 0;
        value = value << 6 | (at[more] & 0x3F);
    }
    bool is_overlong = value < (length == 2 ? 0x80u : length == 3 ? 0x800u : 0x10000u);
    if (is_overlong || (value >= 0xD800 && value < 0xE000) || value > 0x10FFFF) return 0;
    *code_point = value;
    return length;
}

// Classify character by character, starting with the character that extends into the group. If `is_own` is true, flag a
// document for the CPU if it is not valid UTF-8, if a character crosses the edge of the document, or if NFC is required
// and may change the document. The masks of a flagged document are not used.
__device__ __noinline__ Masks masks_of_utf8(const Engine& engine, const Chunk& chunk, long long begin, bool is_own) {
    Masks masks = {};
    const u8* text = chunk.text + begin;
    int at = 0;
    while (at > -3 && (text[at] & 0xC0) == 0x80) at--;
    if (at < 0) {
        u32 lead = text[at], length = lead < 0xC2 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
        if (at + (int)length <= 0) at = 0;
    }
    while (at < (int)GROUP) {
        u32 byte = text[at], length = 1;
        u8 kind = class_of_ascii(byte);
        long long position = begin + at;
        if (byte >= 0x80) {
            u32 code_point = 0;
            long long num_left = (long long)chunk.num_bytes - position;
            length = num_left <= 0 ? 0 : decode(text + at, num_left > 4 ? 4 : (u32)num_left, &code_point);
            kind = length ? engine.classes[code_point] : LEFT_TO_CPU;
            length = max(length, 1u);
            bool is_checked = is_own && at >= 0 && num_left > 0;
            if (kind == LEFT_TO_CPU && is_checked) flag_document(chunk, (u32)position);
            for (u32 more = 1; more < length && is_checked; more++)
                if (is_document_start(engine, (u32)position + more)) {
                    flag_document(chunk, (u32)position);
                    flag_document(chunk, (u32)position + more);
                }
        }
        // A character may start up to three bytes before the group and may end after it.
        u64 bytes = ((1ull << length) - 1) << (at + 3);
        u32 mask = (u32)(bytes >> 3), lead = at < 0 ? 0 : 1u << at;
        if (kind == LETTER) masks.letter |= mask;
        if (kind == NUMBER) masks.number |= mask;
        if (kind == WHITESPACE) masks.white |= mask;
        if (byte == '\n' || byte == '\r') masks.newline |= mask;
        if (byte == ' ') masks.space |= mask;
        if (byte == '\'') masks.apostrophe |= mask;
        masks.inner |= mask & ~lead;
        at += length;
    }
    return masks;
}

// Classify the 32 bytes at `begin`, which may be the group before the chunk. `is_own` is true if this block also
// validates the group.
__device__ inline Masks masks_of(const Engine& engine, const Chunk& chunk, long long begin, bool is_own) {
    const uint4* text = (const uint4*)(chunk.text + begin);
    uint4 low = text[0], high = text[1];
    u32 words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    u32 any = (low.x | low.y | low.z | low.w | high.x | high.y | high.z | high.w) & 0x80808080u;
    Masks masks = any ? masks_of_utf8(engine, chunk, begin, is_own) : masks_of_ascii(words);
    masks.document = engine.document_mask[begin / (long long)GROUP];
    return masks;
}

// Shift a mask so that each bit describes the preceding byte. `earlier` is the mask of the preceding group.
__device__ inline u32 before(u32 earlier, u32 here) { return here << 1 | earlier >> 31; }
__device__ inline u64 both(u32 here, u32 later) { return here | (u64)later << 32; }
