"""A generated code library with the same bytes on every machine and in every version of Python.

Tests do not use the standard library as a corpus, because it differs between Python versions. The content of a
generated file depends only on the name of the file and on `Random.random()`, which Python guarantees not to change.

Most folders, file names and sizes are taken from Python 3.11's standard library. As in real code, there are several
languages, exact copies, tables that differ in a few lines, and a license text and a helper that many files repeat.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple


def _words(text: str) -> list[str]:
    return text.split()


NOUNS = _words("""
    value name path line item key result node index count token buffer stream event state table row entry field word
    window offset batch record cache task queue loop handler message header source target parser reader writer client
    server request response session timeout limit size width depth level label weight score total rate block chunk
    frame part piece segment range bound edge graph tree branch leaf root parent child owner user group role scope
    option flag mode setting config profile schema column cell matrix vector point shape angle color image page view
    widget button panel menu screen cursor mark symbol digit letter string text pattern match rule filter policy plan
    step stage phase cycle signal pulse clock timer date month hour second moment version release patch change diff
""")
VERBS = _words("""
    get set add find read write load save open close make build parse format encode decode check test run start stop
    update remove delete insert append merge split join copy move send receive handle process compute measure count
    sort filter select collect reduce fold expand resolve register notify watch wait retry skip flush reset clear lock
    release acquire attach detach bind connect convert normalize validate compare match search replace escape
""")
ADJECTIVES = _words("""
    new old first last next raw plain empty full small large short long local global public private current pending
    active idle known missing valid broken stale fresh inner outer upper lower left right early late default extra
    shared single double partial complete hidden visible quick slow strict safe final base common weak dirty
""")
PLAIN_WORDS = _words("""
    the a of to is and in that it for not be this are if with as by when or on an from which must may only one at all
    has will can no each before after more than does use used return returns given called into where been other same
""")
NON_ASCII_WORDS = ("naïve", "Größe", "façade", "日本語", "→", "Łódź", "±", "“quoted”")
ERRORS = ("ValueError", "TypeError", "KeyError", "OSError", "RuntimeError", "LookupError")
IMPORTS = _words("os re sys time math types errno queue functools itertools threading weakref")

LIBRARY = {
    "asyncio": """
        __init__.py:1100 __main__.py:3300 base_events.py:74800 base_futures.py:2000 base_subprocess.py:8800
        base_tasks.py:2600 constants.py:1100 coroutines.py:3400 events.py:28400 exceptions.py:1700
        format_helpers.py:2400 futures.py:14200 locks.py:19000 log.py:100 mixins.py:400 proactor_events.py:33200
        protocols.py:6900 queues.py:7900 runners.py:6800 selector_events.py:45100 sslproto.py:31500
        staggered.py:5900 streams.py:27300 subprocess.py:7600 taskgroups.py:8400 tasks.py:34400 threads.py:700
        timeouts.py:5300 transports.py:10700 trsock.py:2400 unix_events.py:51900 windows_events.py:34100
        windows_utils.py:5000
    """,
    "concurrent": """
        __init__.py:50 futures/__init__.py:1500 futures/_base.py:22800 futures/process.py:35400
        futures/thread.py:8700
    """,
    "email": """
        __init__.py:1700 _encoded_words.py:8500 _header_value_parser.py:106900 _parseaddr.py:17800
        _policybase.py:15000 architecture.md:9500 base64mime.py:3500 charset.py:17100 contentmanager.py:10500
        encoders.py:1700 errors.py:3700 feedparser.py:22800 generator.py:20100 header.py:24000
        headerregistry.py:20800 iterators.py:2100 message.py:47900 mime/__init__.py:0 mime/application.py:1300
        mime/audio.py:3000 mime/base.py:900 mime/image.py:3700 mime/message.py:1300 mime/multipart.py:1600
        mime/nonmultipart.py:600 mime/text.py:1400 parser.py:5000 policy.py:10300 quoprimime.py:9800
        utils.py:13400
    """,
    "importlib": """
        __init__.py:6000 _abc.py:1800 _bootstrap.py:48200 _bootstrap_external.py:68800 abc.py:10900
        machinery.py:800 metadata/__init__.py:31000 metadata/_adapters.py:1800 metadata/_collections.py:700
        metadata/_functools.py:2800 metadata/_itertools.py:2000 metadata/_meta.py:1100 metadata/_text.py:2100
        readers.py:300 resources/__init__.py:500 resources/_adapters.py:4500 resources/_common.py:2800
        resources/_itertools.py:800 resources/_legacy.py:3400 resources/abc.py:4500 resources/readers.py:3500
        resources/simple.py:3100 simple.py:300 util.py:11400
    """,
    "json": """
        __init__.py:14000 decoder.py:12400 encoder.py:16000 scanner.py:2400 tool.py:3300
    """,
    "logging": """
        __init__.py:80800 config.py:37000 handlers.py:62200
    """,
    "xml": """
        __init__.py:500 dom/NodeFilter.py:900 dom/__init__.py:4000 dom/domreg.py:3400 dom/expatbuilder.py:35700
        dom/minicompat.py:3300 dom/minidom.py:68100 dom/pulldom.py:11600 dom/xmlbuilder.py:12300
        etree/ElementInclude.py:6800 etree/ElementPath.py:13900 etree/ElementTree.py:73800
        etree/__init__.py:1600 etree/cElementTree.py:50 parsers/__init__.py:100 parsers/expat.py:200
        sax/__init__.py:3600 sax/_exceptions.py:4700 sax/expatreader.py:15700 sax/handler.py:15600
        sax/saxutils.py:12200 sax/xmlreader.py:12600
    """,
    "unittest": """
        __init__.py:3900 __main__.py:400 _log.py:2700 async_case.py:5400 case.py:58500 loader.py:22500
        main.py:11400 mock.py:103800 result.py:8500 runner.py:9400 signals.py:2400 suite.py:13500
        test/__init__.py:600 test/__main__.py:500 test/_test_warnings.py:2300 test/dummy.py:50
        test/support.py:3700 test/test_assertions.py:17200 test/test_async_case.py:16700
        test/test_break.py:10800 test/test_case.py:78200 test/test_discovery.py:32800
        test/test_functiontestcase.py:5500 test/test_loader.py:66100 test/test_program.py:16700
        test/test_result.py:54100 test/test_runner.py:50600 test/test_setups.py:16500
        test/test_skipping.py:20000 test/test_suite.py:15100 test/testmock/__init__.py:400
        test/testmock/__main__.py:600 test/testmock/support.py:200 test/testmock/testasync.py:38100
        test/testmock/testcallable.py:4200 test/testmock/testhelpers.py:34700
        test/testmock/testmagicmethods.py:16200 test/testmock/testmock.py:76600 test/testmock/testpatch.py:60200
        test/testmock/testsealable.py:7300 test/testmock/testsentinel.py:1300 test/testmock/testwith.py:12200
        util.py:5200
    """,
    "clients": "README.md:3000 client.c:9000 client.go:7000 client.js:12000 client.ts:8000 client.rs:6000 Client.java:7000",
}
"""Files of each package, as name:size, with the approximate size in bytes."""
TABLES = _words("""
    cp037 cp1006 cp1026 cp1125 cp1140 cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 cp273 cp424
    cp437 cp500 cp720 cp737 cp775 cp850 cp852 cp855 cp856 cp857 cp858 cp860 cp861 cp862 cp863 cp864 cp865 cp866
    cp869 cp874 cp875 iso8859_1 iso8859_10 iso8859_11 iso8859_13 iso8859_14 iso8859_15 iso8859_16 iso8859_2
    iso8859_3 iso8859_4 iso8859_5 iso8859_6 iso8859_7 iso8859_8 iso8859_9 koi8_r koi8_t koi8_u mac_arabic
    mac_croatian mac_cyrillic mac_farsi mac_greek mac_iceland mac_latin2 mac_roman mac_romanian mac_turkish
    hp_roman8 kz1048 palmos ptcp154 tis_620
""")
CODECS = _words("""
    __init__ aliases ascii base64_codec big5 big5hkscs bz2_codec charmap cp932 cp949 cp950 euc_jis_2004
    euc_jisx0213 euc_jp euc_kr gb18030 gb2312 gbk hex_codec hz idna iso2022_jp iso2022_jp_1 iso2022_jp_2
    iso2022_jp_2004 iso2022_jp_3 iso2022_jp_ext iso2022_kr johab latin_1 mbcs oem punycode quopri_codec
    raw_unicode_escape rot_13 shift_jis shift_jis_2004 shift_jisx0213 undefined unicode_escape utf_16 utf_16_be
    utf_16_le utf_32 utf_32_be utf_32_le utf_7 utf_8 utf_8_sig uu_codec zlib_codec
""")
"""Modules of the folder `encodings` that are not tables."""
COPIES = {
    "importlib/resources/_itertools.py": "importlib/metadata/_itertools.py",
    "xml/parsers/expat.py": "email/mime/base.py",
}
NEAR_COPIES = {
    "importlib/resources/_adapters.py": "importlib/metadata/_functools.py",
    "unittest/test/testmock/testwith.py": "unittest/test/test_break.py",
}

LICENSE_LINES = (
    "Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated",
    "documentation files, to deal in the Software without restriction, including without limitation the rights to use,",
    "copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software.",
)
SHARED_HELPER = '''\
def _pairwise_overlaps(intervals, minimum=0):
    """Yield each two neighbours that share more than `minimum`, with what they share."""
    ordered = sorted(intervals, key=lambda interval: (interval[0], -interval[1]))
    for index, (start, end) in enumerate(ordered):
        for other_start, other_end in ordered[index + 1:]:
            if other_start >= end:
                break
            shared = min(end, other_end) - max(start, other_start)
            if shared > minimum:
                yield (start, end), (other_start, other_end), shared
'''


class Chance:
    """Random choices that depend only on the given names."""

    def __init__(self, *names: object) -> None:
        self._random = Random("/".join(map(str, names))).random

    def happens(self, share: float) -> bool:
        return self._random() < share

    def below(self, end: int) -> int:
        return int(self._random() * end)

    def one_of(self, choices: Sequence[Any]) -> Any:
        return choices[self.below(len(choices))]

    def word(self, words: Sequence[str]) -> str:
        """Choose a word. Words at the start of the list are chosen more often than words at the end."""
        return words[int(self._random() ** 2 * len(words))]

    def name(self) -> str:
        shape = self.below(5)
        if shape == 0:
            return self.word(NOUNS)
        if shape == 1:
            return f"{self.word(NOUNS)}_{self.word(NOUNS)}"
        return f"{self.word(ADJECTIVES)}_{self.word(NOUNS)}" if shape < 4 else f"num_{self.word(NOUNS)}s"

    def function(self) -> str:
        middle = f"_{self.word(ADJECTIVES)}" if self.happens(0.4) else ""
        return f"{self.word(VERBS)}{middle}_{self.word(NOUNS)}"

    def type(self) -> str:
        return f"{self.word(ADJECTIVES)}_{self.word(NOUNS)}".title().replace("_", "")

    def sentence(self) -> str:
        pools = (PLAIN_WORDS, PLAIN_WORDS, NOUNS, NOUNS, VERBS, ADJECTIVES)
        words = [self.word(self.one_of(pools)) for _ in range(4 + self.below(11))]
        if self.happens(0.02):
            words.append(self.one_of(NON_ASCII_WORDS))
        return " ".join(words).capitalize() + "."

    def number(self) -> str:
        return self.one_of(
            (str(self.below(10)), str(self.below(5000)), hex(self.below(1 << 16)), f"{self.below(100)}.5")
        )

    def string(self) -> str:
        quote = self.one_of('""\'')
        return (
            quote + self.one_of((self.word(NOUNS), self.name(), self.sentence(), f"%s {self.word(NOUNS)}\\n")) + quote
        )


class PythonAuthor:
    def __init__(self, chance: Chance) -> None:
        self.chance = chance

    def module(self, num_bytes: int) -> str:
        chance = self.chance
        pieces = [f'"""{chance.sentence()}\n\n{self._paragraph()}\n"""\n']
        if num_bytes > 3000 and chance.happens(0.3):
            pieces[:0] = ["".join(f"# {line}\n" for line in LICENSE_LINES)]
        if num_bytes > 1500:
            pieces.append("".join(f"import {name}\n" for name in IMPORTS if chance.happens(0.3)))
            pieces.append("".join(f"{chance.name().upper()} = {self._literal()}\n" for _ in range(1 + chance.below(6))))
        if num_bytes > 6000 and chance.happens(0.3):
            pieces.append(SHARED_HELPER)
        while sum(map(len, pieces)) < num_bytes:
            pieces.append(self._class() if chance.happens(0.3) else "".join(self._function("", [])))
        return "\n\n".join(pieces)

    def _paragraph(self) -> str:
        return "\n".join(self.chance.sentence() for _ in range(1 + self.chance.below(4)))

    def _literal(self) -> str:
        chance = self.chance
        pairs = (f"    {chance.string()}: {chance.number()},\n" for _ in range(2 + chance.below(9)))
        return chance.one_of((chance.number(), chance.string(), "{\n" + "".join(pairs) + "}"))

    def _class(self) -> str:
        chance = self.chance
        base = f"({chance.one_of(('object', 'dict', 'Exception', chance.type()))})" if chance.happens(0.5) else ""
        lines = [f'class {chance.type()}{base}:\n    """{chance.sentence()}"""\n\n']
        fields = [chance.name() for _ in range(1 + chance.below(4))]
        lines.append(f"    def __init__(self, {', '.join(dict.fromkeys(fields))}):\n")
        lines += [f"        self.{field} = {field}\n" for field in dict.fromkeys(fields)]
        for _ in range(2 + chance.below(5)):
            lines += ["\n", *self._function("    ", ["self"])]
        return "".join(lines)

    def _function(self, indent: str, first: list[str]) -> list[str]:
        chance = self.chance
        names = list(dict.fromkeys(chance.name() for _ in range(chance.below(4))))
        parameters = [*first, *(f"{name}={chance.number()}" if index > 1 else name for index, name in enumerate(names))]
        lines = [f"{indent}@functools.cache\n"] if chance.happens(0.04) and not first else []
        lines.append(f"{indent}def {chance.function()}({', '.join(parameters)}):\n")
        if chance.happens(0.6):
            lines.append(f'{indent}    """{chance.sentence()}"""\n')
        scope = [*first, *names]
        lines += self._block(indent + "    ", scope, 2 + chance.below(7))
        return [*lines, f"{indent}    return {self._expression(scope, 2)}\n"]

    def _block(self, indent: str, scope: list[str], count: int) -> list[str]:
        """Return the lines of `count` statements, some of which follow a comment."""
        lines: list[str] = []
        for _ in range(count):
            if self.chance.happens(0.15):
                lines.append(f"{indent}# {self.chance.sentence()}\n")
            lines += self._statement(indent, scope)
        return lines

    def _statement(self, indent: str, scope: list[str]) -> list[str]:
        chance, inner = self.chance, indent + "    "
        kind = chance.below(16 if len(indent) < 16 else 9)
        if kind < 5 or not scope:
            name, value = chance.name(), self._expression(scope, 2)
            scope.append(name)
            return [f"{indent}{name} = {value}{f'  # {chance.sentence()}' if chance.happens(0.08) else ''}\n"]
        if kind < 7:
            return [f"{indent}{self._call(scope, 2)}\n"]
        if kind == 7:
            return [
                f"{indent}{chance.one_of(scope)}.{chance.name()} {chance.one_of(('=', '=', '+='))} {self._expression(scope, 1)}\n"
            ]
        if kind == 8:
            condition = f"{indent}if {self._condition(scope)}:\n"
            return [condition, f"{inner}raise {chance.one_of(ERRORS)}({chance.string()})\n"]
        few = 1 + chance.below(3)
        if kind < 12:
            lines = [f"{indent}if {self._condition(scope)}:\n", *self._block(inner, scope, few)]
            return lines + ([f"{indent}else:\n", *self._block(inner, scope, 1)] if chance.happens(0.4) else [])
        if kind < 14:
            name = chance.name()
            head = f"{indent}for {name} in {self._expression(scope, 1)}:\n"
            return [head, *self._block(inner, [*scope, name], few)]
        if kind == 14:
            lines = [f"{indent}try:\n", *self._block(inner, scope, few)]
            return [
                *lines,
                f"{indent}except {chance.one_of(ERRORS)} as error:\n",
                *self._block(inner, [*scope, "error"], 1),
            ]
        name = chance.name()
        head = f"{indent}with {self._call(scope, 1)} as {name}:\n"
        return [head, *self._block(inner, [*scope, name], few)]

    def _condition(self, scope: list[str]) -> str:
        chance, value = self.chance, self._expression(scope, 1)
        return chance.one_of((
            f"{value} {chance.one_of(('<', '>', '==', '!=', '<=', 'in', 'not in'))} {self._expression(scope, 1)}",
            f"{chance.one_of(scope)} is {chance.one_of(('', 'not '))}None",
            f"not {chance.one_of(scope)}",
            f"isinstance({chance.one_of(scope)}, {chance.one_of(('str', 'int', 'bytes', 'list'))})",
            f"{chance.one_of(scope)} and {value}",
        ))  # fmt: skip

    def _call(self, scope: list[str], depth: int) -> str:
        chance = self.chance
        called = f"{chance.one_of(scope)}.{chance.function()}" if scope and chance.happens(0.6) else chance.function()
        arguments = [self._expression(scope, depth - 1) for _ in range(chance.below(3))]
        if chance.happens(0.15):
            arguments.append(f"{chance.name()}={self._expression(scope, 0)}")
        return f"{called}({', '.join(arguments)})"

    def _expression(self, scope: list[str], depth: int) -> str:
        chance = self.chance
        kind = chance.below(14 if depth > 0 and scope else 4)
        if kind == 0 or not scope:
            return chance.number()
        if kind < 3:
            return str(chance.one_of(scope))
        if kind == 3:
            return f"{chance.one_of(scope)}.{chance.name()}" if chance.happens(0.7) else chance.string()
        if kind < 8:
            return self._call(scope, depth)
        left, right = self._expression(scope, depth - 1), self._expression(scope, depth - 1)
        item = chance.word(NOUNS)
        return (
            f"{left} {chance.one_of('+-*|')} {right}",
            f"{chance.one_of(scope)}[{right}]",
            f"[{left}, {right}]",
            f"[{item}.{chance.name()} for {item} in {chance.one_of(scope)} if {item}]",
            f"{left} if {chance.one_of(scope)} else {right}",
            f"f'{{{chance.one_of(scope)}}} {chance.word(NOUNS)}'",
        )[kind - 8]


class Syntax(NamedTuple):
    """Templates for code in a language with braces."""

    comment: str
    opening: str
    function: str
    parameter: str
    variable: str
    loop: str
    branch: str
    end: str = ";"


SYNTAXES = {
    ".js": Syntax("//", "'use strict';", "function {}({}) {{", "{}", "let {} = {}", "for (const {} of {}) {{", "if ({}) {{"),
    ".ts": Syntax("//", "export {};", "export function {}({}): number {{", "{}: number", "const {} = {}", "for (const {} of {}) {{", "if ({}) {{"),
    ".java": Syntax("//", "class Made {", "static long {}({}) {{", "long {}", "long {} = {}", "for (long {} : {}) {{", "if ({}) {{"),
    ".c": Syntax("//", "#include <stdio.h>", "static long {}({})\n{{", "long {}", "long {} = {}", "for (long {} = 0; {} > 9;) {{", "if ({}) {{"),
    ".go": Syntax("//", "package made", "func {}({}) int {{", "{} int", "{} := {}", "for {} := range {} {{", "if {} {{", ""),
    ".rs": Syntax("//", "use std::fmt;", "pub fn {}({}) -> i64 {{", "{}: i64", "let {} = {}", "for {} in {} {{", "if {} {{"),
}  # fmt: skip


class BraceAuthor:
    def __init__(self, chance: Chance, suffix: str) -> None:
        self.chance, self.syntax = chance, SYNTAXES[suffix]

    def module(self, num_bytes: int) -> str:
        syntax = self.syntax
        pieces = [f"{syntax.comment} {self.chance.sentence()}\n{syntax.opening}\n"]
        while sum(map(len, pieces)) < num_bytes:
            pieces.append(self._function())
        return "\n".join(pieces) + ("}\n" if syntax.opening.endswith("{") else "")

    def _function(self) -> str:
        chance, syntax = self.chance, self.syntax
        scope = list(dict.fromkeys(chance.name() for _ in range(1 + chance.below(3))))
        head = syntax.function.format(chance.function(), ", ".join(map(syntax.parameter.format, scope)))
        body = "".join(self._statement("    ", scope) for _ in range(2 + chance.below(8)))
        return f"{syntax.comment} {chance.sentence()}\n{head}\n{body}    return {self._expression(scope, 1)}{syntax.end}\n}}\n"

    def _statement(self, indent: str, scope: list[str]) -> str:
        chance, syntax = self.chance, self.syntax
        if chance.happens(0.6) or len(indent) > 12:
            name, value = f"{chance.name()}{len(scope)}", self._expression(scope, 2)
            scope.append(name)
            return f"{indent}{syntax.variable.format(name, value)}{syntax.end}\n"
        inner = [*scope, "item"]
        head = syntax.loop.format("item", chance.one_of(scope))
        if chance.happens(0.5):
            head = syntax.branch.format(f"{chance.one_of(scope)} {chance.one_of('<>')} {self._expression(scope, 1)}")
            inner = [*scope]
        body = "".join(self._statement(indent + "    ", inner) for _ in range(1 + chance.below(3)))
        return f"{indent}{head}\n{body}{indent}}}\n"

    def _expression(self, scope: list[str], depth: int) -> str:
        chance = self.chance
        kind = chance.below(6 if depth > 0 else 3)
        if kind == 0:
            return str(chance.below(1000))
        if kind < 3:
            return str(chance.one_of(scope))
        left, right = self._expression(scope, depth - 1), self._expression(scope, depth - 1)
        return f"{left} {chance.one_of('+-*')} {right}" if kind < 5 else f"{chance.function()}({left}, {right})"


def made_module(name: str, num_bytes: int) -> str:
    """Return a module of at least `num_bytes` bytes. The name decides the text, and its suffix the language."""
    chance, suffix = Chance(name), Path(name).suffix
    if suffix == ".py":
        return PythonAuthor(chance).module(num_bytes)
    if suffix in SYNTAXES:
        return BraceAuthor(chance, suffix).module(num_bytes)
    paragraphs = [f"# {chance.sentence()}\n"]
    while sum(map(len, paragraphs)) < num_bytes:
        paragraphs.append("".join(f"{chance.sentence()}\n" for _ in range(2 + chance.below(5))))
    return "\n".join(paragraphs)


def made_table(family: str, name: str) -> str:
    """Return a table of characters. The tables of a family differ in a few lines."""
    shared, individual = Chance(family), Chance(family, name)
    lines = [
        f'"""Character table {name}, of the family {family}: {individual.sentence()}"""\n\nimport codecs\n\nTABLE = (\n'
    ]
    for code in range(256):
        words = f"{shared.word(ADJECTIVES)} {shared.word(NOUNS)} {shared.word(VERBS)}".upper()
        point = shared.below(1 << 16)
        if individual.happens(0.06):
            words, point = f"{individual.word(ADJECTIVES)} {individual.word(NOUNS)}".upper(), individual.below(1 << 16)
        lines.append(f"    '\\u{point:04x}'     #  0x{code:02X} -> {words}\n")
    return "".join([*lines, ")\n"])


def made_codec(name: str) -> str:
    """Return a codec module. Codec modules differ only in the name of the codec."""
    title = name.title().replace("_", "")
    return f"""\
#
# {name}.py: a codec between bytes and text
#

import codecs

codec = codecs.lookup('{name}')


class Codec{title}(codecs.Codec):
    encode = codec.encode
    decode = codec.decode


class IncrementalEncoder(codecs.IncrementalEncoder):
    codec = codec


class IncrementalDecoder(codecs.IncrementalDecoder):
    codec = codec


def getregentry():
    return codecs.CodecInfo(name='{name}', encode=Codec{title}().encode, decode=Codec{title}().decode)
"""


def made_library() -> dict[str, str]:
    """Return the texts of all files, keyed by path: about 300 files, 4 MB in total."""
    texts = {}
    for package, listed in LIBRARY.items():
        for name, _, size in (one.rpartition(":") for one in listed.split()):
            path = f"{package}/{name}"
            texts[path] = made_module(path, int(size)) if int(size) else ""
    for path, original in COPIES.items():
        texts[path] = texts[original]
    for path, original in NEAR_COPIES.items():
        texts[path] = texts[original].replace("result", "outcome") + f"\n# {Chance(path).sentence()}\n"
    for name in TABLES:
        texts[f"encodings/{name}.py"] = made_table(name.rstrip("0123456789_"), name)
    for name in CODECS:
        texts[f"encodings/{name}.py"] = made_codec(name)
    return texts
