"""Generated documents that share spans."""

VOCAB_SIZE = 50_000


def made_texts(rng):
    """Return two lists of texts that share spans. A text is a list of ids.

    The texts have few distinct ids, so spans also repeat by chance.
    """
    pool = [[rng.randrange(rng.choice([3, 12, 400])) for _ in range(rng.randrange(1, 140))] for _ in range(4)]

    def text():
        parts = []
        for _ in range(rng.randrange(1, 4)):
            piece = rng.choice(pool)
            start = rng.randrange(len(piece))
            parts += piece[start : start + rng.randrange(1, 140)]
            parts += [rng.randrange(500) for _ in range(rng.randrange(0, 40))]
        return parts

    return [text() for _ in range(rng.randrange(1, 5))], [text() for _ in range(rng.randrange(1, 6))]
