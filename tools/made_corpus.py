"""Write a small generated corpus in ten languages, and inputs derived from a corpus: tables, a benchmark, tokenizers.

The content of a file depends only on its name and on `Random.random()`, which Python guarantees not to change. The
files include copies, near-duplicates, shared passages, licenses, random text that looks like secrets, notebooks,
unusual encodings, generated code, vendored code and links. A build drops, cuts, redacts or groups these files.
`tools/compare_builds.py` uses the corpus.
"""

import base64
import contextlib
import gzip
import json
import math
import os
import re
import string
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

Choice = TypeVar("Choice")
LETTERS_AND_DIGITS = string.ascii_letters + string.digits
NOUNS = """
    value name path line item key node index count buffer stream event state table entry field word offset batch record
    cache task queue handler message header source target parser reader writer client server request session limit
    size width depth level label weight score rate block frame part segment range edge graph tree branch leaf root
    parent child owner group role scope option flag mode profile schema column cell matrix vector point shape angle
""".split()  # noqa: SIM905 - a table
VERBS = """
    get set add find read write load save open close make build parse format encode decode check run start stop update
    remove insert append merge split join copy move send handle compute measure sort filter select collect reduce
    expand resolve register watch wait retry skip flush reset clear bind convert compare match search replace escape
""".split()  # noqa: SIM905 - a table
SMALL_WORDS = """
    the a of to is and in that it for not this are if with as by when or on an from which may only
""".split()  # noqa: SIM905 - a table

MIT = """\
MIT License

Copyright (c) 2020 The made-up authors

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


class Syntax(NamedTuple):
    """Templates for code in one language. The defaults are for C."""

    suffix: str
    head: str
    function: str
    parameter: str
    local: str
    loop: str
    comment: str = "//"
    branch: str = "if ({}) {{"
    back: str = "return {};"
    close: str = "}"
    """Text at the end of a block. Empty for Python."""
    foot: str = ""


C_LOOP = "for (long {0} = 0; {0} < {1}; {0}++) {{"
JS_LOOP = "for (let {0} = 0; {0} < {1}; {0}++) {{"
GO_LOOP = "for {0} := 0; {0} < {1}; {0}++ {{"
SYNTAXES = (
    Syntax(
        ".py", "import math", "def {}({}):", "{}", "{} = {}", "for {} in range({}):", "#", "if {}:", "return {}", ""
    ),
    Syntax(".js", "'use strict';", "function {}({}) {{", "{}", "let {} = {};", JS_LOOP),
    Syntax(".ts", "export {};", "export function {}({}): number {{", "{}: number", "let {} = {};", JS_LOOP),
    Syntax(".java", "class Made {", "static long {}({}) {{", "long {}", "long {} = {};", C_LOOP, foot="}\n"),
    Syntax(".c", "#include <stdio.h>", "static long {}({}) {{", "long {}", "long {} = {};", C_LOOP),
    Syntax(".cpp", "#include <vector>", "long {}({}) {{", "long {}", "auto {} = {};", C_LOOP),
    Syntax(".go", "package made", "func {}({}) int {{", "{} int", "{} := {}", GO_LOOP, "//", "if {} {{", "return {}"),
    Syntax(".rs", "use std::fmt;", "pub fn {}({}) -> i64 {{", "{}: i64", "let {} = {};", "for {} in 0..{} {{"),
)


class SeededChoices:
    """Pseudo-random choices that depend only on the given name."""

    def __init__(self, name: str) -> None:
        self._random = Random(name).random  # noqa: S311 - no secret depends on it

    def is_chosen(self, share: float) -> bool:
        return self._random() < share

    def integer_below(self, end: int) -> int:
        return int(self._random() * end)

    def choice(self, options: Sequence[Choice]) -> Choice:
        return options[self.integer_below(len(options))]

    def name(self) -> str:
        return f"{self.choice(NOUNS)}_{self.choice(NOUNS)}" if self.is_chosen(0.6) else self.choice(NOUNS)

    def sentence(self) -> str:
        words = [
            self.choice((SMALL_WORDS, NOUNS, VERBS)[self.integer_below(3)]) for _ in range(4 + self.integer_below(10))
        ]
        return " ".join(words).capitalize() + "."

    def characters(self, count: int, alphabet: str = LETTERS_AND_DIGITS) -> str:
        return "".join(self.choice(alphabet) for _ in range(count))

    def base64_lines(self, num_bytes: int) -> str:
        return base64.encodebytes(bytes(self.integer_below(256) for _ in range(num_bytes))).decode()


class CodeGenerator:
    """Generate functions with local names, comments, loops and branches in one language."""

    def __init__(self, syntax: Syntax, name: str) -> None:
        self.syntax, self.choices = syntax, SeededChoices(name)

    def module(self, num_bytes: int) -> str:
        pieces = [f"{self.syntax.comment} {self.choices.sentence()}\n{self.syntax.head}\n"]
        num_written = 0
        while num_written < num_bytes:
            pieces.append(self.function())
            num_written += len(pieces[-1])
        return "\n".join(pieces) + self.syntax.foot

    def function(self) -> str:
        choices, syntax = self.choices, self.syntax
        scope = sorted({choices.name() for _ in range(1 + choices.integer_below(3))})
        name = f"{choices.choice(VERBS)}_{choices.name()}"
        lines = [f"{syntax.comment} {choices.sentence()}"]
        lines.append(syntax.function.format(name, ", ".join(map(syntax.parameter.format, scope))))
        for _ in range(3 + choices.integer_below(7)):
            self._statement("    ", scope, lines)
        lines.append("    " + syntax.back.format(self._expression(scope)))
        return "\n".join([*lines, syntax.close, ""] if syntax.close else [*lines, ""])

    def _statement(self, indent: str, scope: list[str], lines: list[str]) -> None:
        choices, syntax = self.choices, self.syntax
        if choices.is_chosen(0.15):
            lines.append(f"{indent}{syntax.comment} {choices.sentence()}")
        if choices.is_chosen(0.6) or len(indent) > 8:  # noqa: PLR2004 - two levels are enough
            name = f"{choices.name()}_{len(scope)}"
            lines.append(indent + syntax.local.format(name, self._expression(scope)))
            scope.append(name)
            return
        if choices.is_chosen(0.5):
            lines.append(indent + syntax.loop.format("step", choices.choice(scope)))
        else:
            lines.append(indent + syntax.branch.format(f"{choices.choice(scope)} > {choices.integer_below(900)}"))
        inner = list(scope)
        for _ in range(1 + choices.integer_below(3)):
            self._statement(indent + "    ", inner, lines)
        if syntax.close:
            lines.append(indent + syntax.close)

    def _expression(self, scope: Sequence[str]) -> str:
        choices = self.choices
        left, right = choices.choice(scope), choices.choice([*scope, str(choices.integer_below(5000))])
        sign = choices.choice("+-*")
        return choices.choice((
            f"{left} {sign} {right}",
            f"({left} {sign} {choices.integer_below(99)}) * {right}",
            f"{choices.choice(VERBS)}_{choices.choice(NOUNS)}({left}, {right})",
            left,
        ))  # fmt: skip


def write_corpus(folder: Path) -> None:
    """Write about 200 files, 900 KB in total. A build keeps most of the files."""
    files: dict[str, str | bytes] = {}
    _add_modules(files)
    _add_copies(files)
    _add_documents(files)
    _add_licenses(files)
    _add_secrets(files)
    _add_encodings(files)
    _add_dropped(files)
    write_files(folder, files)
    (folder / "link.py").symlink_to("src/module_00.py")
    os.mkfifo(folder / "pipe.txt")
    with contextlib.suppress(OSError):  # not every file system allows names that are not UTF-8
        (folder / os.fsdecode(b"docs/na\xefve.md")).write_bytes(
            b"# A name in Latin-1\n\nIts path is escaped in rows.\n"
        )


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def _add_modules(files: dict[str, str | bytes]) -> None:
    sizes = SeededChoices("sizes")
    for syntax in SYNTAXES:
        passage = CodeGenerator(syntax, "shared passage").function() * 2
        for index in range(36 if syntax.suffix == ".py" else 9):
            parent = ("src", "src/core", "tests", "apache")[index % 4]
            name = f"{parent}/module_{index:02}{syntax.suffix}"
            text = CodeGenerator(syntax, name).module(500 + sizes.integer_below(5000))
            if index % 5 == 0:  # several files share a span of more than 50 tokens
                text = text.removesuffix(syntax.foot) + "\n" + passage + syntax.foot
            if parent == "apache":
                text = f"{syntax.comment} SPDX-License-Identifier: Apache-2.0\n{text}"
            files[name] = text
    files["src/long.py"] = CodeGenerator(SYNTAXES[0], "long").module(60_000)
    files["src/tiny.py"] = "x = 1\n"
    files["src/broken.py"] = CodeGenerator(SYNTAXES[0], "broken").module(1500) + "def half(\n    if else ))\n"
    files["src/Größe und 日本語.py"] = (
        CodeGenerator(SYNTAXES[0], "odd name").module(2000) + '\nGRÖSSE = "naïve → 日本語 🙂"\n'
    )
    files["src/control.py"] = 'BEGIN, END, MASK = "<s>", "</s>", "<mask>"\nPREFIX = "<fim_prefix>", "<|endoftext|>"\n'
    files["src/no_line_feed.py"] = CodeGenerator(SYNTAXES[0], "no line feed").module(900).rstrip("\n")
    files["bin/start"] = '#!/bin/sh\nset -e\nfor each in one two three; do\n    echo "starting $each"\ndone\n'


def _add_copies(files: dict[str, str | bytes]) -> None:
    for index in range(3):
        files[f"copies/exact_{index}.py"] = files[f"src/module_{index * 4:02}.py"]
    for suffix in (".py", ".go", ".rs"):
        for index in range(4):  # each copy differs from the original in one line
            lines = str(files[f"src/core/module_05{suffix}"]).splitlines(keepends=True)
            lines.insert(3 + 7 * index, f"{'#' if suffix == '.py' else '//'} edited in copy {index}\n")
            files[f"copies/near_{index}{suffix}"] = "".join(lines)
    long = str(files["src/long.py"]).splitlines(keepends=True)
    for index in range(10):  # parts of a longer, dissimilar file, which are contaminated if they are held out
        files[f"copies/part_{index}.py"] = "".join(long[100 * index : 100 * index + 40])


def _add_documents(files: dict[str, str | bytes]) -> None:
    for index in range(8):
        choices = SeededChoices(f"document {index}")
        paragraphs = [" ".join(choices.sentence() for _ in range(5)) for _ in range(4 + choices.integer_below(9))]
        files[f"docs/page_{index}.md"] = f"# {choices.sentence()}\n\n" + "\n\n".join(paragraphs) + "\n"
        cells = [
            {"cell_type": "markdown", "metadata": {}, "source": [f"## {choices.sentence()}\n", choices.sentence()]},
            {
                "cell_type": "code",
                "execution_count": index,
                "metadata": {},
                "outputs": [{"output_type": "stream", "name": "stdout", "text": ["never shown\n"]}],
                "source": CodeGenerator(SYNTAXES[0], f"notebook {index}").module(700).splitlines(keepends=True),
            },
        ]
        notebook = {"cells": cells, "metadata": {"kernelspec": {"language": "python"}}, "nbformat": 4}
        files[f"notebooks/study_{index}.ipynb"] = json.dumps({**notebook, "nbformat_minor": 5}, indent=1)
        settings = {choices.name(): choices.integer_below(1000) for _ in range(30)}
        files[f"data/settings_{index}.json"] = json.dumps(settings, indent=2) + "\n"
        files[f"data/settings_{index}.yaml"] = "".join(f"{key}: {value}\n" for key, value in settings.items())
    files["notebooks/torn.ipynb"] = '{"cells": [{"cell_type": "code", "sour'
    files["data/table.csv"] = "".join(f"{row},{row * row},{row * 7 % 13}\n" for row in range(300))


def _add_licenses(files: dict[str, str | bytes]) -> None:
    files["LICENSE"] = MIT
    files["web/package.json"] = json.dumps({"name": "made-up", "version": "1.0.0", "license": "BSD-3-Clause"}, indent=2)
    files["web/page.js"] = CodeGenerator(SYNTAXES[1], "web page").module(2000)
    files["closed/LICENSE"] = (
        "Nobody may use, copy or look at this without asking the made-up authors first.\n"  # sentence: data
    )
    files["closed/module.py"] = CodeGenerator(SYNTAXES[0], "closed").module(2500)


def _add_secrets(files: dict[str, str | bytes]) -> None:
    """Add random texts that look like secrets, but are not valid credentials."""
    for index in range(6):
        choices = SeededChoices(f"secret {index}")
        capitals = string.ascii_uppercase + string.digits
        body = CodeGenerator(SYNTAXES[0], f"secret module {index}").module(1200)
        lines = (
            f'cloud_id = "AK{"IA"}{choices.characters(16, capitals)}"',
            f'forge = "gh{"p"}_{choices.characters(36)}"',
            f'password = "{choices.characters(20)}"',
            f'address = "https://reader:{choices.characters(18)}@db.made-up.dev/rows"',
            f'owner = "someone.{index}@made-up-company.dev"',
            f'KEY = """-----BEGIN {"PRIVATE"} KEY-----\n{choices.base64_lines(400)}-----END {"PRIVATE"} KEY-----"""',
        )
        files[f"src/access_{index}.py"] = body + "\n".join(lines[: index + 1]) + "\n"


def _add_encodings(files: dict[str, str | bytes]) -> None:
    text = CodeGenerator(SYNTAXES[0], "encodings").module(1800)
    files["encodings/crlf.py"] = CodeGenerator(SYNTAXES[0], "crlf").module(2500).replace("\n", "\r\n")
    files["encodings/mixed_ends.js"] = CodeGenerator(SYNTAXES[1], "mixed").module(1500).replace(";\n", ";\r\n")
    files["encodings/old_mac.txt"] = "\r".join(SeededChoices("old mac").sentence() for _ in range(20))
    files["encodings/latin_1.py"] = (
        CodeGenerator(SYNTAXES[0], "latin").module(1500).encode() + b"# na\xefve caf\xe9, Gr\xf6\xdfe\n"
    )
    files["encodings/utf_16.py"] = text.encode("utf-16")
    files["encodings/with_mark.py"] = b"\xef\xbb\xbf" + CodeGenerator(SYNTAXES[0], "mark").module(1500).encode()
    files["encodings/only_a_mark.py"] = b"\xef\xbb\xbf"
    files["encodings/empty.py"] = b""
    files["encodings/blank.py"] = "\n  \n\t\n"
    files["encodings/binary.c"] = bytes(SeededChoices("binary").integer_below(256) for _ in range(2000))
    files["encodings/nul.py"] = b"x = 1\n\0\0\0\ny = 2\n"
    files["encodings/combining.md"] = "Cafe\u0301 and café, \u212b and \u00c5, \u200b\u2028 and \ufeff inside.\n" * 4


def _add_dropped(files: dict[str, str | bytes]) -> None:
    files["generated/api_pb2.py"] = "# Generated by a program. DO NOT EDIT.\n" + CodeGenerator(
        SYNTAXES[0], "api"
    ).module(1500)
    files["vendor/other.go"] = CodeGenerator(SYNTAXES[6], "vendored").module(1500)
    files["node_modules/left/index.js"] = CodeGenerator(SYNTAXES[1], "left").module(800)
    files["package-lock.json"] = json.dumps({"lockfileVersion": 3, "packages": {}})
    files["web/site.min.js"] = "".join(f"function f{index}(a){{return a+{index}}}" for index in range(300))
    files["web/one_line.py"] = "values = [" + ", ".join(map(str, range(900))) + "]"
    files["web/long_line.py"] = "x = 1\n" * 50 + "text = '" + "word " * 1500 + "'\n"
    files["web/long_lines.py"] = "".join(f"line_{index} = '{'many words ' * 30}'\n" for index in range(20))
    files["data/blob.py"] = (
        "BLOB = '" + SeededChoices("blob").base64_lines(6000).replace("\n", "") + "'\nprint(len(BLOB))\n"
    )
    files["data/digits.py"] = "".join(f"{row * 7919:>40}\n" for row in range(120))
    files["data/huge.txt"] = "one of many lines\n" * 60_000
    files["locale/de.po"] = 'msgid "open"\nmsgstr "öffnen"\n' * 20
    files["images/logo.png"] = b"\x89PNG\r\n\x1a\n" + bytes(64)


def change_corpus(folder: Path) -> None:
    """Edit, delete, move, copy and replace some files of a corpus."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    contents = [path.read_bytes() for path in paths]
    for index, (path, content) in enumerate(zip(paths, contents, strict=True)):
        match index % 9:
            case 1:
                path.write_bytes(content + b"\nedited = 1\n")
            case 3:
                path.unlink()
            case 5:
                path.rename(path.with_name(f"moved_{path.name}"))
            case 7:
                path.with_name(f"added_{path.name}").write_bytes(b"# a new near-copy\n" + content)
            case 8:  # a near-duplicate of a file that may be in another split
                path.write_bytes(contents[index - 4] + b"\nreplaced = 1\n")


def write_derived(corpus: Path, folder: Path) -> None:
    """Write inputs made from a corpus: a second source, a repository, tables, benchmarks and tokenizers."""
    texts = texts_in(corpus)
    write_files(folder / "second/corpus", {f"again/{path}": text for path, text in texts[2::5]})
    write_files(folder / "single", {"alone.py": CodeGenerator(SYNTAXES[0], "alone").module(9000)})
    _write_repository(folder / "repository", texts)
    _write_tables(folder / "tables", texts)
    _write_benchmarks(folder / "benchmarks", texts)
    _write_tokenizers(folder / "tokenizers", texts)


def texts_in(corpus: Path) -> list[tuple[str, str]]:
    """Return path and text of up to 400 UTF-8 files in path order, without hidden files and files over 100 KB."""
    found: list[tuple[str, str]] = []
    for path in sorted(corpus.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.stat().st_size > 100_000:  # noqa: PLR2004 - see above
            continue
        with contextlib.suppress(UnicodeDecodeError):
            text = path.read_bytes().decode()
            name = str(path.relative_to(corpus)).encode(errors="replace").decode()
            found += [(name, text)] if text.strip() and "\0" not in text and not re.search(r"(^|/)\.", name) else []
    return found[:400]


def _write_repository(folder: Path, texts: Sequence[tuple[str, str]]) -> None:
    """Write a git repository with every third text. One folder is in .gitignore, and one file is not committed."""
    write_files(folder, dict(texts[::3]))
    write_files(folder, {".gitignore": "hidden/\n", "hidden/never.py": "never = 1\n"})
    identity = {"NAME": "made up", "EMAIL": "made-up@example.org", "DATE": "2020-01-01T00:00:00+0000"}
    variables = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in identity.items()}
    no_config = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "All of it"]):
        subprocess.run(["git", *command], cwd=folder, env={**os.environ, **variables, **no_config}, check=True)  # noqa: S607
    write_files(folder, {"later.py": CodeGenerator(SYNTAXES[0], "later").module(1500)})


def _write_tables(folder: Path, texts: Sequence[tuple[str, str]]) -> None:
    import pyarrow as pa  # noqa: PLC0415 - an extra of gristmill
    from pyarrow import parquet  # noqa: PLC0415

    licenses: tuple[list[str], ...] = (["MIT"], ["Apache-2.0", "MIT"], [], ["GPL-3.0-only"])
    rows: list[dict[str, Any]] = [
        {
            "content": None if index % 40 == 39 else text,  # noqa: PLR2004 - some rows have no text
            "max_stars_repo_path": path,
            "max_stars_repo_name": f"made/up-{index % 3}",
            "max_stars_repo_licenses": licenses[index % 4],
        }
        for index, (path, text) in enumerate(texts)
    ]
    folder.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(rows), folder / "stack.parquet", row_group_size=50)
    lines = [json.dumps(row) for row in rows]
    (folder / "stack.jsonl").write_text("\n".join(lines) + "\n")
    packed = gzip.compress("\n".join(lines[:60]).encode(), mtime=0)
    (folder / "some.jsonl.gz").write_bytes(packed)
    named = [json.dumps({"src": text, "id": path, "from": "elsewhere", "terms": "MIT"}) for path, text in texts[::2]]
    (folder / "named.jsonl").write_text("\n".join(named) + "\n")


def _write_benchmarks(folder: Path, texts: Sequence[tuple[str, str]]) -> None:
    """Write passages of some files as a benchmark, as if the benchmark had leaked into the corpus."""
    passages = [text[len(text) // 4 : len(text) // 4 + 900] for _, text in texts[len(texts) // 3 :: 11]]
    rows = [
        json.dumps({"task_id": index, "prompt": text[:300], "solution": text[300:]})
        for index, text in enumerate(passages)
    ]
    write_files(folder, {"tasks.jsonl": "\n".join(rows) + "\n", "plain.txt": texts[len(texts) // 2][1]})


def _write_tokenizers(folder: Path, texts: Sequence[tuple[str, str]]) -> None:
    """Write a WordPiece tokenizer and a Unigram tokenizer, both with common words and all characters of the texts."""
    text = "".join(text for _, text in texts)
    words = Counter(re.findall(r"[a-z]{3,}", text.lower()))
    common = sorted(words, key=lambda word: (-words[word], word))[:600]
    characters = sorted({character for character in text if character.isprintable() and not character.isspace()})
    lower = sorted({character for character in text.lower() if character in characters})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *lower, *(f"##{one}" for one in lower), *common]
    word_piece = _tokenizer_json(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor={"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": False},
        model={
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {piece: index for index, piece in enumerate(dict.fromkeys(pieces))},
        },
    )
    total = sum(words.values())
    scored = [(f"▁{word}", round(math.log(words[word] / total), 6)) for word in common]
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    unigram = _tokenizer_json(
        special,
        normalizer=None,
        pre_tokenizer=metaspace,
        post_processor={
            "type": "RobertaProcessing",
            "sep": ["</s>", 2],
            "cls": ["<s>", 0],
            "trim_offsets": True,
            "add_prefix_space": False,
        },
        decoder=metaspace,
        model={
            "type": "Unigram",
            "unk_id": 3,
            "byte_fallback": False,
            "vocab": [
                *((one, 0.0) for one in special),
                ("▁", -3.0),
                ("\n", -3.0),
                *((one, -9.0) for one in characters),
                *scored,
            ],
        },
    )
    write_files(folder, {"wordpiece.json": word_piece, "unigram.json": unigram})


def _tokenizer_json(special: Sequence[str], **parts: Any) -> str:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": index, "content": token, **flags} for index, token in enumerate(special)]
    return json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **parts})
