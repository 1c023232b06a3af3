"""Find the rules by which a tokenizer splits text into words. Raise NotOnGpuError if the kernels lack these rules.

The kernels do not run a regex. They decide from the characters around a position whether a word starts there. A regex
is supported only if tests show that the rules of the kernels give the same words (test_word_starts.py). Regexes are
compared as text. For all other tokenizers, NotOnGpuError contains the reason, and a build encodes on the CPU.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from gristmill.core.errors import NotOnGpuError
from gristmill.tokenizers.definition import Definition

Family = Literal["gpt2", "cl100k"]
Digits = Literal["runs", "single", "threes", "apart"]
Step = dict[str, Any]

CONTRACTIONS = ("s", "t", "re", "ve", "m", "ll", "d")
"""Letters that form a word with a preceding apostrophe: only lowercase in the family gpt2, any case in cl100k."""
LONG_S = "\u017f"
"""The only non-ASCII character that `(?i:…)` treats like a letter of CONTRACTIONS: like s. Its UTF-8 is C5 BF."""

GPT2_REGEX = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_REGEX = CL100K_REGEX.replace(r"\p{N}{1,3}", r"\p{N}")
NFC = {"type": "NFC"}


class Pattern(NamedTuple):
    """Rules that split text into words."""

    name: str
    family: Family
    digits: Digits
    """Rule for runs of numeric characters.

    - runs: one word per run
    - single: one word per character
    - threes: groups of three from the start of the run
    - apart: one word per character, and the texts before and after the character are split into words separately
    """
    with_nfc: bool = False
    """True if the tokenizer normalizes text to NFC. The GPU encodes only texts that are already in NFC."""

    @classmethod
    def of(cls, definition: Definition) -> "Pattern":
        """Return the rules of a tokenizer. Raise NotOnGpuError if the rules are not supported."""
        problem = next(_unsupported(definition), None)
        if problem is not None:
            raise refusal(definition, problem)
        pattern = _pattern_of(_steps(definition.file.pre_tokenizer))
        if pattern is None:
            raise refusal(definition, f"its pre-tokenizer {_describe(definition.file.pre_tokenizer)} is not supported")
        return pattern._replace(with_nfc=definition.file.normalizer is not None)


GPT2 = Pattern("gpt2", "gpt2", "runs")
STARCODER2 = Pattern("starcoder2", "gpt2", "apart")
CL100K = Pattern("cl100k", "cl100k", "threes")
QWEN2 = Pattern("qwen2", "cl100k", "single")
# tiktoken's own regex for cl100k is not supported. In tiktoken, the last + of `\p{N}{1,3}+` is possessive. In the regex
# engine of `tokenizers`, this + is a repetition, so 1234567 is one word. `\s++$` makes the last line feed of a text and
# the whitespace after the line feed one word.
PATTERNS_BY_REGEX = {
    GPT2_REGEX: GPT2,
    CL100K_REGEX: CL100K,
    QWEN2_REGEX: QWEN2,
    # `\s*` matches all newlines but the last, so `+` after the newlines makes no difference.
    CL100K_REGEX.replace(r"[\r\n]+|\s", r"[\r\n]|\s"): CL100K,
    QWEN2_REGEX.replace(r"[\r\n]+|\s", r"[\r\n]|\s"): QWEN2,
}


def compile_options(pattern: Pattern, id_bits: int) -> tuple[str, ...]:
    """Return the compiler options for kernels/all.cu."""
    options = [f"-DID_BITS={id_bits}", f"-DIGNORES_CASE={int(pattern.family == 'cl100k')}"]
    options.append("-DFAMILY_GPT2" if pattern.family == "gpt2" else "-DFAMILY_CL100K")
    options += {"apart": ["-DDIGITS_APART"], "threes": ["-DDIGITS_IN_THREES"]}.get(pattern.digits, [])
    return tuple(options)


def refusal(definition: Definition, problem: str) -> NotOnGpuError:
    """Return the error for a tokenizer that is not supported on a GPU."""
    return NotOnGpuError(
        f"the tokenizer {definition.name!r} is not supported on a GPU: {problem}. "
        "Leave out --device cuda to use the CPU."
    )


def _unsupported(definition: Definition) -> Iterator[str]:
    """Yield unsupported properties of a tokenizer, except those of its pre-tokenizer and its vocabulary."""
    model = definition.model
    if model.type != "BPE":
        yield f"its model is {model.type}, not BPE"
    if definition.file.normalizer is not None and _steps(definition.file.normalizer) != [NFC]:
        yield f"its normalizer {_describe(definition.file.normalizer)} is not supported"
    settings = ("byte_fallback", "dropout", "continuing_subword_prefix", "end_of_word_suffix")
    yield from (f"its model's {setting} is not supported" for setting in settings if getattr(model, setting))
    if definition.plain_tokens:
        first = definition.plain_tokens[0].content
        yield f"its added tokens for ordinary text, such as {first!r}, are not supported"


def _pattern_of(steps: list[Step]) -> Pattern | None:
    byte_level = steps[-1] if steps else {}
    if byte_level.get("type") != "ByteLevel" or byte_level.get("add_prefix_space", True):
        return None
    earlier_steps, uses_regex = steps[:-1], byte_level.get("use_regex", True)
    if not earlier_steps:
        return GPT2 if uses_regex else None
    if earlier_steps == [{"type": "Digits", "individual_digits": True}]:
        return STARCODER2 if uses_regex else None
    return None if uses_regex or len(earlier_steps) > 1 else _pattern_of_split(earlier_steps[0])


def _pattern_of_split(step: Step) -> Pattern | None:
    is_isolated = step.get("behavior") == "Isolated" and not step.get("invert", False)
    regex = step.get("pattern", {}).get("Regex") if step.get("type") == "Split" and is_isolated else None
    return PATTERNS_BY_REGEX.get(regex) if isinstance(regex, str) else None


def _steps(step: Step | None) -> list[Step]:
    if step is None:
        return []
    return _parts(step) if step.get("type") == "Sequence" else [step]


def _parts(step: Step) -> list[Step]:
    return list(step.get("pretokenizers") or step.get("normalizers") or [])


def _describe(step: Step | None) -> str:
    """Describe a step for an error message, such as `Sequence[Digits, ByteLevel(add_prefix_space)]`."""
    if step is None:
        return "(none)"
    parts = _parts(step)
    settings = [name for name, setting in step.items() if setting is True]
    settings += [repr(part) for part in (step.get("behavior"), step.get("pattern")) if part is not None]
    inside = f"[{', '.join(map(_describe, parts))}]" if parts else ""
    return f"{step.get('type')}{inside}" + (f"({', '.join(settings)})" if settings else "")
