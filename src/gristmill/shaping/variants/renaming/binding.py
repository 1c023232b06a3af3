"""What the captures of a query bind, and where it is used.

use              an identifier; all of them
skip             one that is no variable: a field, a label, the name of a keyword argument
scope            a block; scope.function, scope.local (a comprehension), scope.class (functions inside see nothing
                 of it), scope.wall (what is used through it stays), scope.item (a function behind such a wall)
outside          inside a scope by its place, but worked out in the scope around it
define           binds a name that may be renamed; define.function: in the function around it
late             what is defined in it is known from its end on: let x = x + 1
keep             binds a name that stays; keep.outer: in the scope around it
pin              names in it stay, whatever they mean; pin.format: those in {}; pin.tokens: those that a macro may
                 take for something else
hold             keep and pin
forbid           names in it stay in the whole file
dynamic          here names are looked up by text: all stays as it is in the functions around it
"""

import re
from collections.abc import Collection, Iterable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

from gristmill.shaping.variants.grammars import Parsed
from gristmill.shaping.variants.renaming.scopes import SCOPES, WHOLE_FILE, Binding, Range, Regions, Scopes

if TYPE_CHECKING:
    from tree_sitter import Node

Found: TypeAlias = "dict[str, list[Node]]"
Place: TypeAlias = tuple[int, bytes, Binding]

ORDERED = frozenset({"rust", "go", "java", "c", "c++"})
"""Here a name counts from its declaration on; elsewhere in all of its scope."""

PREPROCESSED = frozenset({"c", "c++"})
"""A macro may use a variable by its name: one that nothing else uses stays."""

LOOKING = {
    "python": frozenset(b"locals vars dir eval exec _getframe currentframe stack query evaluate".split()),
    **dict.fromkeys(("javascript", "jsx", "typescript", "tsx"), frozenset({b"eval"})),
}
"""Functions that may look for a variable by its name."""
LOOKING_ANYHOW = frozenset({b"locals", b"vars", b"eval", b"exec"})
"""Also where they are only handed on: map(eval, names)"""
CALLED = re.compile(rb"\s*\(")

WORDS = {
    "pin": re.compile(rb"\w+"),
    "hold": re.compile(rb"\w+"),
    "forbid": re.compile(rb"\w+"),
    "pin.format": re.compile(rb"(?<=\{)\s*\w+|\w+(?=\$)"),
    "pin.tokens": re.compile(rb"\w+(?=\s*(?:=(?!=)|:(?!:)))|(?<=\.)\s+\w+"),
}

MEMBERS = re.compile(rb"(?<!\.)\.(?=\w)")
"""Among the tokens of a macro in Rust a field looks like any other name."""


class Places:
    """Where names that might be renamed are used, and for which binding."""

    def __init__(self, parsed: Parsed, found: Found, names: frozenset[bytes]) -> None:
        self._parsed = parsed
        self._found = found
        self._names = names - {name for _, name in self._words("forbid", names)}
        self._scopes = Scopes(self._ranges(SCOPES), len(parsed.text))
        self._declarations = Regions(self._ranges(["late"]), len(parsed.text))
        self._defined: dict[int, Binding] = {}
        """By their places."""

    def renamable(self, errors: Iterable[tuple[int, int]]) -> list[Place]:
        """In the order of the text."""
        if self._scopes.is_too_deep:
            return []
        self._bind()
        self._pin()
        left_alone = {WHOLE_FILE}.union(*(self._scopes.roots_touching(start, end) for start, end in errors))
        places = self._uses(left_alone)
        for node in self._found.get("dynamic", ()):
            left_alone |= self._scopes.roots_touching(node.start_byte, node.end_byte)
        places.sort(key=itemgetter(0))
        _spread_kept(binding for _, _, binding in places)
        fewest = 2 if self._parsed.language in PREPROCESSED else 1
        return [
            place
            for place in places
            if not place[2].is_kept and place[2].num_places >= fewest and place[2].root not in left_alone
        ]

    def _bind(self) -> None:
        scopes = self._scopes
        for start, name in self._named("define"):
            self._define(scopes.at(start), start, name)
        for start, name in self._named("keep"):
            scopes.bind(scopes.at(start), name).is_kept = True
        for start, name in self._named("keep.outer"):
            scopes.bind(max(scopes.parents[scopes.at(start)], WHOLE_FILE), name).is_kept = True
        for start, name in self._words("hold", self._names):
            scopes.bind(scopes.at(start), name).is_kept = True
        self._bind_in_functions()

    def _bind_in_functions(self) -> None:
        """catch (e) { var e = 1 } means two of them."""
        hoisted = list(self._named("define.function"))
        for start, name in hoisted:
            self._define(self._scopes.function_of(self._scopes.at(start)), start, name)
        for start, name in hoisted:
            meant = self._scopes.resolve(start, name)
            if meant is not None and meant is not self._defined[start]:
                meant.tie(self._defined[start])

    def _define(self, scope: int, start: int, name: bytes) -> None:
        binding = self._defined[start] = self._scopes.bind(scope, name)
        if self._parsed.language in ORDERED:
            known_from = self._end_of_declaration(start, scope)
            binding.visible_from = min(known_from, binding.visible_from or known_from)

    def _end_of_declaration(self, start: int, scope: int) -> int:
        """Not of one around the scope: let a = |b| b + 1"""
        declared_at, minus_end, _ = self._declarations.around(start)
        return -minus_end if declared_at > self._scopes.ranges[scope][0] else start

    def _pin(self) -> None:
        for kind in WORDS:
            for start, name in self._words(kind, self._names):
                for binding in self._scopes.visible(start, name):
                    binding.is_kept = True

    def _uses(self, left_alone: set[int]) -> list[Place]:
        """The hot loop: all the identifiers of a file. Functions that look for names are added to those left alone."""
        text, resolve, defined = self._parsed.text, self._scopes.resolve, self._defined
        looking = LOOKING.get(self._parsed.language, frozenset())
        watched = self._names | looking
        skipped = {node.start_byte for kind in ("skip", "keep.outer") for node in self._found.get(kind, ())}
        if self._parsed.language == "rust":
            skipped.update(dot.end() for dot in MEMBERS.finditer(text))
        places = []
        for node in self._found["use"]:
            start = node.start_byte
            name = text[start : node.end_byte]
            if name not in watched:
                continue
            binding = None if start in skipped else defined.get(start) or resolve(start, name)
            if binding is not None:
                binding.num_places += 1
                places.append((start, name, binding))
            elif name in looking and (name in LOOKING_ANYHOW or CALLED.match(text, node.end_byte)):
                left_alone |= self._scopes.roots_touching(start, start)
        return places

    def _named(self, kind: str) -> Iterator[tuple[int, bytes]]:
        text = self._parsed.text
        for node in self._found.get(kind, ()):
            name = text[node.start_byte : node.end_byte]
            if name in self._names:
                yield node.start_byte, name

    def _words(self, kind: str, names: Collection[bytes]) -> Iterator[tuple[int, bytes]]:
        text = self._parsed.text
        for node in self._found.get(kind, ()):
            for word in WORDS[kind].finditer(text, node.start_byte, node.end_byte):
                if word[0].strip() in names:
                    yield word.start(), word[0].strip()

    def _ranges(self, kinds: Iterable[str]) -> list[Range]:
        return [
            (node.start_byte, -node.end_byte, rank)
            for rank, kind in enumerate(kinds)
            for node in self._found.get(kind, ())
        ]


def _spread_kept(bindings: Iterable[Binding]) -> None:
    """To what is tied to those that stay."""
    todo = [binding for binding in bindings if binding.is_kept]
    while todo:
        for tied in todo.pop().tied:
            if not tied.is_kept:
                tied.is_kept = True
                todo.append(tied)
