"""Report sentence patterns and names that make gristmill hard to read. `make lint` runs this script.

    python tools/check_sentences.py                # all source folders
    python tools/check_sentences.py src/gristmill/core tests/core

In Python files, the script reads docstrings, comments, string literals that contain a space, and defined names. In
JavaScript, HTML and CSS files, it reads every line. A line that contains `sentence: data` is not checked.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDERS = ("src", "tests", "benchmarks", "tools", "examples")
PLAIN_SUFFIXES = (".js", ".html", ".css")
ALLOWED = "sentence: " + "data"


class Rule(NamedTuple):
    pattern: re.Pattern[str]
    advice: str


OPENINGS = [
    Rule(
        re.compile(r"\A(Of|What|Where|Whether|Who|Whoever|Whose|Which|How|That|Those|None:)(?=[\s,]|\Z)"),
        "start a docstring with a verb or a noun phrase",
    )
]
SENTENCES = [
    Rule(re.compile(rf"\b({words})\b", re.IGNORECASE), advice)
    for words, advice in (
        ("tells?|told|telling", "write: records, prints, reports, describes"),
        ("nobody|whoever|whomever|whence|whereabouts", "name the subject"),
        ("lies|lying", "write: is in"),
        ("(?:go|goes|going|went)\\ by", "write: uses, follows, depends on"),
        ("knows|knew", "write: has, records, supports"),
        ("(?:has|have)\\ it(?!\\ been)", "name the object"),
        ("(?:is|are|was|were)\\ there", "write: exists, is available"),
        ("(?:come|comes|came)\\ of", "write: results from"),
    )
]
NAMES = [
    Rule(
        re.compile(
            r"(?:\A|_)(told|tells?|telling|nobody|behind|lies|lucks?|goes_on|is_there)(?=_|\Z)|Told|Telling|Nobody"
        ),
        "choose a name that needs no docstring",
    )
]


class Text(NamedTuple):
    line: int
    text: str
    rules: list[Rule]


class Finding(NamedTuple):
    path: Path
    line: int
    excerpt: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.excerpt!r}: {self.advice}"


def check(path: Path) -> Iterator[Finding]:
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    texts = _python_texts(source) if path.suffix == ".py" else _lines(lines)
    for text in texts:
        if ALLOWED in lines[text.line - 1]:
            continue
        for rule in text.rules:
            if match := rule.pattern.search(text.text):
                excerpt = text.text[max(0, match.start() - 30) : match.end() + 30]
                yield Finding(path, text.line, " ".join(excerpt.split()), rule.advice)


def _lines(lines: list[str]) -> Iterator[Text]:
    for number, line in enumerate(lines, start=1):
        yield Text(number, line, SENTENCES)


def _python_texts(source: str) -> Iterator[Text]:
    tree = ast.parse(source)
    docstrings = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(ast.Constant(str() as text)):
                docstrings.add(node.value)
                yield Text(node.lineno, text.strip(), OPENINGS + SENTENCES)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield Text(node.lineno, name, NAMES)
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield Text(node.lineno, name, NAMES)
            case ast.Constant(str() as text) if node not in docstrings and " " in text:
                yield Text(node.lineno, text, SENTENCES)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(token.start[0], token.string, SENTENCES)


def main(arguments: list[str]) -> int:
    findings: list[Finding] = []
    for root in map(Path, arguments or FOLDERS):
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.suffix in (".py", *PLAIN_SUFFIXES):
                findings += check(path)
    print(*findings, sep="\n", end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
