"""A text -> what a model is asked about it. Every word here decides answers: a change asks for all of them anew."""

import re

FENCE = "`"
SHORTEST_FENCE = 3

PARAPHRASE = """\
Rewrite this {language} file so that it does exactly the same and is written differently: other names for what is \
local, other but equivalent control flow, expressions and idioms, other comments, another order of definitions where \
the order has no effect. Keep every name, signature, string and number that can be seen from outside the file. \
Answer with the whole file in one fenced code block and nothing else.

{code}
"""

DESCRIBE = """\
Describe precisely and in plain English what this {language} file does, so that a programmer who never sees it can \
write a file that does the same: each definition and what it is for, its inputs, results, side effects, errors and \
edge cases, what it imports, and every constant and string that can be seen from outside. Write no code.

{code}
"""

IMPLEMENT = """\
Write the {language} file that this description is of. Answer with the whole file in one fenced code block and \
nothing else.

{description}

Keep these names and signatures as they are:

{signatures}
"""


def paraphrase_prompt(text: str, language: str) -> str:
    return PARAPHRASE.format(language=language, code=_fenced(text))


def description_prompt(text: str, language: str) -> str:
    return DESCRIBE.format(language=language, code=_fenced(text))


def implementation_prompt(description: str, signatures: list[str], language: str) -> str:
    kept = _fenced("\n".join(signatures) or "(none)")
    return IMPLEMENT.format(language=language, description=description.strip(), signatures=kept)


def _fenced(text: str) -> str:
    """By a fence that the text does not hold: a docstring may show code as well."""
    longest = max(map(len, re.findall(f"{FENCE}+", text)), default=0)
    fence = FENCE * max(SHORTEST_FENCE, longest + 1)
    return f"{fence}\n{text.removesuffix(chr(10))}\n{fence}"
