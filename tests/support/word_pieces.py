"""Pieces of text that the rules for word starts treat differently."""

from gristmill.tokenizers.cuda.patterns import (
    CONTRACTIONS,
    LONG_S,
)

WHITE = " \t\n\r\v\f\u0085\u00a0\u2003\u2028\u3000"


PIECES = [
    *WHITE,
    *("  ", "\r\n", "\n\n", " \n", "\n ", "!\n", "\x00", "\x1c", "\u200b"),
    *("a", "Z", "é", "字", "ß", LONG_S, "K", "e\u0301", "\u0301", "🙂", "👩\u200d💻", "'", "''", "’", "!", "_", "=="),
    *("0", "7", "42", "12345", "\u0663", "½", "Ⅷ", "\U00011de0", "\U00016ff4"),
    *(
        f"'{letters}"
        for contraction in CONTRACTIONS
        for letters in (contraction, contraction.upper(), contraction.title())
    ),
    *("'" + LONG_S, "'r", "'L", "'lLe", "'Re", "'vE"),
]
