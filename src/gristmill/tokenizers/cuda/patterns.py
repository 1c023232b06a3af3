"""A tokenizer.json -> which rules split its text into words, or why a GPU cannot encode it exactly.

A kernel does not run a regex: it decides at each character, from its neighbours, whether a word starts there. So only
patterns whose rules are proven equal to the regex (test_word_starts.py) are known, each by its exact spelling.
All else is refused by name, and the CPU serves it.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from gristmill.core.errors import NotOnGpuError
from gristmill.tokenizers.definition import Definition

Family = Literal["gpt2", "cl100k"]
Digits = Literal["runs", "single", "threes", "apart"]
Step = dict[str, Any]

CONTRACTIONS = ("s", "t", "re", "ve", "m", "ll", "d")
"""What is a word with the apostrophe before it. In the family gpt2 in lower case, in cl100k in any."""
LONG_S = "\u017f"
"""The one character beyond ASCII that `(?i:…)` takes for a letter of CONTRACTIONS: for an s. Two bytes, C5 BF."""

GPT2_REGEX = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_REGEX = CL100K_REGEX.replace(r"\p{N}{1,3}", r"\p{N}")
NFC = {"type": "NFC"}


class Pattern(NamedTuple):
    name: str
    family: Family
    digits: Digits
    """How numeric characters are cut: by runs, each, by three from the run's start, or each and with no context across
    it (apart): whitespace before it is as at the text's end, what follows as at the text's start."""
    with_nfc: bool = False
    """Text is normalized to NFC first. A card does what is in NFC already."""

    @classmethod
    def of(cls, definition: Definition) -> "Pattern":
        defect = next(_defects(definition), None)
        if defect is not None:
            raise refusal(definition, defect)
        pattern = _pattern_of(_steps(definition.file.pre_tokenizer))
        if pattern is None:
            raise refusal(definition, f"its pre-tokenizer {_described(definition.file.pre_tokenizer)} is not supported")
        return pattern._replace(with_nfc=definition.file.normalizer is not None)


GPT2 = Pattern("gpt2", "gpt2", "runs")
STARCODER2 = Pattern("starcoder2", "gpt2", "apart")
CL100K = Pattern("cl100k", "cl100k", "threes")
QWEN2 = Pattern("qwen2", "cl100k", "single")
# tiktoken's own spelling of cl100k is not among them. Its `\p{N}{1,3}+` is possessive there, but in the engine of
# `tokenizers` it repeats: 1234567 is one word. And its `\s++$` keeps blanks after a last line feed together with it.
PATTERNS_BY_REGEX = {
    GPT2_REGEX: GPT2,
    CL100K_REGEX: CL100K,
    QWEN2_REGEX: QWEN2,
    # `\s*` has taken the newlines before the last one, so that the last `+` has nothing more to take.
    CL100K_REGEX.replace(r"[\r\n]+|\s", r"[\r\n]|\s"): CL100K,
    QWEN2_REGEX.replace(r"[\r\n]+|\s", r"[\r\n]|\s"): QWEN2,
}


def compile_options(pattern: Pattern, id_bits: int) -> tuple[str, ...]:
    """What kernels/all.cu wants to know."""
    options = [f"-DID_BITS={id_bits}", f"-DIGNORES_CASE={int(pattern.family == 'cl100k')}"]
    options.append("-DFAMILY_GPT2" if pattern.family == "gpt2" else "-DFAMILY_CL100K")
    options += {"apart": ["-DDIGITS_APART"], "threes": ["-DDIGITS_IN_THREES"]}.get(pattern.digits, [])
    return tuple(options)


def refusal(definition: Definition, defect: str) -> NotOnGpuError:
    return NotOnGpuError(
        f"the tokenizer {definition.name!r} cannot be encoded exactly on a GPU: {defect}. "
        "The CPU serves it: leave --device cuda out."
    )


def _defects(definition: Definition) -> Iterator[str]:
    """Of all but the pre-tokenizer and the vocabulary."""
    model = definition.model
    if model.type != "BPE":
        yield f"its model {model.type} is not BPE"
    if definition.file.normalizer is not None and _steps(definition.file.normalizer) != [NFC]:
        yield f"its normalizer {_described(definition.file.normalizer)} is not supported"
    settings = ("byte_fallback", "dropout", "continuing_subword_prefix", "end_of_word_suffix")
    yield from (f"its model's {setting} is not supported" for setting in settings if getattr(model, setting))
    if definition.plain_tokens:
        first = definition.plain_tokens[0].content
        yield f"it finds added tokens in text, like {first!r}, which is not supported"


def _pattern_of(steps: list[Step]) -> Pattern | None:
    byte_level = steps[-1] if steps else {}
    if byte_level.get("type") != "ByteLevel" or byte_level.get("add_prefix_space", True):
        return None
    before, splits_itself = steps[:-1], byte_level.get("use_regex", True)
    if not before:
        return GPT2 if splits_itself else None
    if before == [{"type": "Digits", "individual_digits": True}]:
        return STARCODER2 if splits_itself else None
    return None if splits_itself or len(before) > 1 else _pattern_of_split(before[0])


def _pattern_of_split(step: Step) -> Pattern | None:
    is_isolated = step.get("behavior") == "Isolated" and not step.get("invert", False)
    spelled = step.get("pattern", {}).get("Regex") if step.get("type") == "Split" and is_isolated else None
    return PATTERNS_BY_REGEX.get(spelled) if isinstance(spelled, str) else None


def _steps(step: Step | None) -> list[Step]:
    if step is None:
        return []
    return _parts(step) if step.get("type") == "Sequence" else [step]


def _parts(step: Step) -> list[Step]:
    return list(step.get("pretokenizers") or step.get("normalizers") or [])


def _described(step: Step | None) -> str:
    """`Sequence[Digits, ByteLevel(add_prefix_space)]`"""
    if step is None:
        return "(none)"
    parts = _parts(step)
    settings = [name for name, setting in step.items() if setting is True]
    settings += [repr(part) for part in (step.get("behavior"), step.get("pattern")) if part is not None]
    inside = f"[{', '.join(map(_described, parts))}]" if parts else ""
    return f"{step.get('type')}{inside}" + (f"({', '.join(settings)})" if settings else "")
