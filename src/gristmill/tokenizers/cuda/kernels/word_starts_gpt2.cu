// GPT-2's pattern (CodeBERT, RoBERTa):
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// 1. A whitespace character starts a word if it does not follow whitespace, or if it ends its run but not its document.
// 2. Any other character does not start a word after a space, because the space belongs to its word. After whitespace
//    that is not a space, it starts a word.
// 3. Otherwise a word starts where the class changes between letter, number and other.
// 4. An apostrophe that starts a word starts a contraction if the letters of a contraction follow, such as 's. The
//    contraction is a separate word.
//
//   it's   x = 1       it|'s|··|·x|·=|·1
//
// With DIGITS_APART (StarCoder 2), each number is split off before the pattern is applied. The effect is the same as if
// a document started at each number and after each number.
#include "word_starts.cuh"

#ifdef DIGITS_APART
__device__ inline u32 with_pieces(const Masks& earlier, const Masks& here) {
    return here.document | ((here.number | before(earlier.number, here.number)) & ~here.inner);
}
#endif

__device__ u32 starts_in(const Engine& engine, const Chunk& chunk, const Group& given) {
    Group group = given;
#ifdef DIGITS_APART
    group.later.document = with_pieces(group.here, group.later);
    group.here.document = with_pieces(group.earlier, group.here);
    group.earlier.document = with_pieces(Masks{}, group.earlier);
#endif
    const Masks &earlier = group.earlier, &here = group.here;
    u32 letter_before = before(earlier.letter, here.letter), number_before = before(earlier.number, here.number);
    u32 white_before = before(earlier.white, here.white), space_before = before(earlier.space, here.space);
    u32 other = here.other(), other_before = ~(letter_before | number_before | white_before);
    u32 continues = (here.letter & letter_before) | (here.number & number_before) | (other & other_before);
    u32 starts = here.document | (~here.white & ~space_before & ~continues) |
                 (here.white & (~white_before | last_before_text(group)));
    u32 apostrophes = here.apostrophe & ((~space_before & ~other_before) | here.document);
    u32 earlier_free = ~before(0, earlier.space) & ~before(0, earlier.other());
    u32 earlier_apostrophes = earlier.apostrophe & (earlier_free | earlier.document);
    return with_contractions(starts & ~here.inner, apostrophes, earlier_apostrophes, group);
}
