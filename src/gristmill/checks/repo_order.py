"""With --pack repo: each repository's files are contiguous, and in the order of the settings (`windows`).

The order by seed or by imports is computed again, the latter from the texts of the rows. The code is independent of the
build's: it reads line by line, without regular expressions, and finds cycles with Kosaraju's algorithm.
"""

import hashlib
import heapq
import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import NamedTuple

from gristmill.checks.file_rows import FilesTable, KeptFile
from gristmill.checks.findings import Faults
from gristmill.checks.requirements import Settings
from gristmill.checks.runs import Stretch
from gristmill.checks.spelling import Spelling
from gristmill.checks.windows_by_file import RepoKey, Rows, Segment
from gristmill.core.layout import MANIFEST
from gristmill.core.manifest import OrderFacts
from gristmill.core.records import Split
from gristmill.runners.local import LocalRunner
from gristmill.sources.imports import (
    COMPILED_ENDINGS,
    MOST_FOLDERS,
    MOST_IMPORTS,
    MOST_NAMESAKES,
    PYTHON_ENDINGS,
    SCRIPT_ENDINGS,
)

CHECK = "windows"
TOKENS_PER_TASK = 1 << 18
BLANKS = b" \t"
WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
DIGITS = frozenset(b"0123456789")


class RepoOrders(NamedTuple):
    by_repo: dict[RepoKey, list[str]]
    """Paths in the expected order; in the order of the rows if the expected one cannot be computed."""
    why_unchecked: str | None
    """The reason why the order was not computed; None if it was."""


def check_repo_order(
    rows: Rows, table: FilesTable, settings: Settings, runner: LocalRunner, faults: Faults
) -> RepoOrders:
    if not settings.is_by_repo:
        return RepoOrders({}, None)
    files: dict[RepoKey, list[KeptFile]] = {}
    for file in sorted(table.kept.values(), key=lambda file: file.key):
        files.setdefault((file.split, file.repo), []).append(file)
    if settings.repo_order == "imports" and not settings.spelling.is_close:
        found = {
            key: list(dict.fromkeys(one.path for one in segments))
            if settings.fim.is_on  # stretches may be in any order
            else _check_together(segments, key, faults)
            for key, segments in rows.layouts.items()
        }
        return RepoOrders(found, settings.no_tokenizer or "this tokenizer does not give the text back")
    wanted = {key: [one.path for one in own] for key, own in files.items()}
    if settings.repo_order == "imports":
        wanted = _by_imports(files, rows, settings, runner, faults)
    elif settings.repo_order == "shuffle":
        seed = settings.repo_order_seed
        wanted = {key: sorted(own, key=partial(_shuffle_key, seed, key[1])) for key, own in wanted.items()}
    for key, segments in rows.layouts.items():
        in_order = _by_stretches(segments, wanted.get(key, ())) if settings.fim.is_on else segments
        paths = _check_together(in_order, key, faults)
        pairs = enumerate(zip(paths, wanted.get(key, ()), strict=False))  # a file too many is said elsewhere
        at = next((at for at, (one, other) in pairs if one != other), None)
        if at is not None:
            segment = next(one for one in rows.layouts[key] if one.path == paths[at])
            what = f"found in place of {key[1]}/{wanted[key][at]}, in the order by {settings.repo_order}"
            faults.add(CHECK, what, file=segment.file, row=segment.row, path=f"{key[1]}/{paths[at]}")
    return RepoOrders(wanted, None)


def _by_stretches(segments: Sequence[Segment], paths: Sequence[str]) -> list[Segment]:
    """Return the segments with the stretches that share rows in the order of their first files.

    A window of fill in the middle is not cut, so a row may end early, and share the rest with any other stretch.
    """
    place = {path: number for number, path in enumerate(paths)}
    stretches = [list(own) for _, own in groupby(segments, key=lambda one: (one.file, one.row, one.group))]
    stretches.sort(key=lambda own: (place.get(own[0].path, -1), own[0].start))
    return [segment for own in stretches for segment in own]


def _check_together(segments: Sequence[Segment], key: RepoKey, faults: Faults) -> list[str]:
    """Return the paths in the order of their first segments. A file's segments follow each other."""
    order: dict[str, None] = {}
    for path, own in groupby(segments, key=lambda one: one.path):
        parts = list(own)
        if path in order:
            what = "other files of the repository stand between its tokens"
            faults.add(CHECK, what, file=parts[0].file, row=parts[0].row, path=f"{key[1]}/{path}")
        for before, after in pairwise(parts):
            if after.start <= before.start:
                what = f"token {after.start} stands behind token {before.start}"
                faults.add(CHECK, what, file=after.file, row=after.row, path=f"{key[1]}/{path}")
        order.setdefault(path)
    return list(order)


def _shuffle_key(seed: int, repo: str, path: str) -> tuple[int, str]:
    named = f"repo order\0{seed}\0{repo}\0{path}".encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "little"), path


# The order by imports, from the texts.


class SpelledFile(NamedTuple):
    language: str
    stretches: list[Stretch]


def _by_imports(
    files: dict[RepoKey, list[KeptFile]], rows: Rows, settings: Settings, runner: LocalRunner, faults: Faults
) -> dict[RepoKey, list[str]]:
    read = runner.map(partial(read_all, settings.spelling), list(_tasks(files, rows)))
    names = (own for some in read for own in some)
    wanted: dict[RepoKey, list[str]] = {}
    counts: dict[Split, Counter[str]] = {split: Counter() for split in Split}
    for key, own in files.items():
        tree = _Tree([file.path for file in own])
        named = [next(names) if file.language in READERS else [] for file in own]
        for file, imports in zip(own, named, strict=True):
            if file.language == "go-mod":
                tree.add_module(file.path, imports)
        imported = [
            tree.imported(number, file.language, imports)
            for number, (file, imports) in enumerate(zip(own, named, strict=True))
        ]
        order, num_broken = _in_order(imported)
        wanted[key] = [own[number].path for number in order]
        counts[key[0]] += Counter(repos=any(imported), imports=sum(map(len, imported)), broken=num_broken)
    for split, found in counts.items():
        facts = (settings.manifest.packing or {}).get(split)
        said = None if facts is None else facts.order
        if said != OrderFacts(repos=found["repos"], imports=found["imports"], broken=found["broken"]):
            faults.add(CHECK, f"packing.{split}.order is {said}, and it should be {dict(found)}", file=MANIFEST)
    return wanted


def _tasks(files: dict[RepoKey, list[KeptFile]], rows: Rows) -> Iterator[list[SpelledFile]]:
    batch, size = list[SpelledFile](), 0
    for own in files.values():
        for file in own:
            if file.language not in READERS:
                continue
            runs = rows.by_file.get(file.key, ())
            batch.append(SpelledFile(file.language, runs[0].run.stretches if runs else []))
            size += file.tokens
            if size >= TOKENS_PER_TASK:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


Names = list[tuple[str, str]]
"""A module, and what is imported from it."""


def read_all(spelling: Spelling, files: list[SpelledFile]) -> list[Names]:
    return [_names_in(file, spelling) for file in files]


def _names_in(file: SpelledFile, spelling: Spelling) -> Names:
    text = b"\n".join(spelling.tokenizer.decode(stretch.ids) for stretch in file.stretches)
    found: Names = []
    for one in READERS[file.language](b"\n".join(text.split(b"\r\n"))):
        found.append(one)
        if len(found) == MOST_IMPORTS:
            break
    return list(dict.fromkeys(found))


Lines = Iterator[bytes]


def _after(line: bytes, word: bytes) -> bytes | None:
    """Return the text after the word and its blanks; None if the line does not begin with them."""
    rest = line.lstrip(BLANKS)[len(word) :]
    return rest.lstrip(BLANKS) if line.lstrip(BLANKS).startswith(word) and rest[:1] in {b" ", b"\t"} else None


def _leading(text: bytes, allowed: frozenset[int]) -> bytes:
    size = next((at for at, byte in enumerate(text) if byte not in allowed), len(text))
    return text[:size]


def _up_to(line: bytes, signs: bytes) -> bytes:
    places = [at for at in map(line.find, (signs[at : at + 1] for at in range(len(signs)))) if at >= 0]
    return line[: min(places, default=len(line))]


def _block(first: bytes, lines: Lines, comment: bytes, end: bytes) -> Iterator[bytes]:
    """Lines without their comments, up to the sign that ends the block."""
    line: bytes | None = first
    while line is not None:
        line = line.partition(comment)[0]
        yield line.partition(end)[0]
        if end in line:
            return
        line = next(lines, None)


def _is_name(word: bytes) -> bool:
    return bool(word) and word[0] not in DIGITS and not set(word) - WORD


def _python(text: bytes) -> Iterator[tuple[str, str]]:
    lines = iter(b" ".join(text.split(b"\\\n")).split(b"\n"))
    for line in lines:
        modules = _after(line, b"import")
        if modules is not None:
            for word in _words(_up_to(modules, b"#;(")):
                if word[0] not in DIGITS | {ord(".")} and not set(word) - WORD - {ord(".")}:
                    yield word.decode(), ""
            continue
        rest = _after(line, b"from")
        module = _leading(rest or b"", WORD | {ord(".")})
        behind = (rest or b"")[len(module) :]
        if not module or behind[:1] not in {b" ", b"\t"} or not behind.lstrip(BLANKS).startswith(b"import"):
            continue
        names = behind.lstrip(BLANKS)[len(b"import") :].lstrip(BLANKS)
        is_block = names.startswith(b"(")
        joined = b"\n".join(_block(names[1:], lines, b"#", b")")) if is_block else _up_to(names, b"#;(")
        yield from ((module.decode(), word.decode()) for word in _words(joined) if word == b"*" or _is_name(word))


def _words(names: bytes) -> list[bytes]:
    """The first word of each that a comma parts."""
    return [one.split()[0] for one in names.split(b",") if one.split()]


def _go(text: bytes) -> Iterator[tuple[str, str]]:
    lines = iter(text.split(b"\n"))
    for line in lines:
        if not line.lstrip(BLANKS).startswith(b"import"):
            continue
        rest = line.lstrip(BLANKS)[len(b"import") :]
        is_block = rest.lstrip(BLANKS).startswith(b"(")
        if not is_block and rest[:1] not in {b" ", b"\t", b'"'}:
            continue
        for one in _block(rest.lstrip(BLANKS)[1:], lines, b"//", b")") if is_block else [rest]:
            alias, quote, named = one.lstrip(BLANKS).partition(b'"')
            word, is_closed = alias.rstrip(BLANKS), b'"' in named
            is_alias = not alias or (word != alias and not set(word) - WORD - {ord(".")})
            if quote and is_closed and is_alias and not named.startswith(b'"'):
                yield _text(named.partition(b'"')[0]), ""


def _go_mod(text: bytes) -> Iterator[tuple[str, str]]:
    for line in text.split(b"\n"):
        rest = _after(line, b"module")
        if rest is not None:
            path = _up_to(rest.removeprefix(b'"'), b'\t\f\r "')
            if path:
                yield _text(path), ""
                return


def _rust(text: bytes) -> Iterator[tuple[str, str]]:
    lines = iter(text.split(b"\n"))
    for line in lines:
        rest = _without_pub(line.lstrip(BLANKS))
        module, uses = _after(rest, b"mod"), _after(rest, b"use")
        if module is not None:
            name = _leading(module, WORD)
            if name and module[len(name) :].lstrip(BLANKS).startswith(b";"):
                yield f"self::{name.decode()}", ""
        elif uses is not None:
            yield from ((path, "") for path in _paths(b"\n".join(_block(uses, lines, b"//", b";"))))


def _without_pub(line: bytes) -> bytes:
    """`pub(crate) use a;` -> `use a;`"""
    if not line.startswith(b"pub"):
        return line
    rest = line[3:]
    if rest.startswith(b"("):
        _, closed, rest = rest.partition(b")")
        if not closed:
            return line
    return rest.lstrip(BLANKS) if rest[:1] in {b" ", b"\t"} else line


def _paths(uses: bytes) -> Iterator[str]:
    trail: list[bytes] = []
    marks: list[int] = []
    for item, sign in _items(uses):
        words = item[: item.index(b"as")] if b"as" in item else item
        if sign == b"{":
            marks.append(len(trail))
            trail += words
            continue
        if words:
            names = [*trail[:MOST_FOLDERS], *words][:MOST_FOLDERS]
            if names[0] in {b"crate", b"super", b"self"}:
                is_self = names[-1] == b"self" and names != [b"self"]
                yield b"::".join(names[:-1] if is_self else names).decode()
        if sign == b"}" and marks:
            del trail[marks.pop() :]


def _items(uses: bytes) -> Iterator[tuple[list[bytes], bytes]]:
    """Words, with the brace or comma behind them; the last has none."""
    words: list[bytes] = []
    word = bytearray()
    for byte in (*uses, ord(",")):
        if byte in WORD:
            word.append(byte)
            continue
        if word:
            words.append(bytes(word))
            word.clear()
        if byte in b"{},":
            yield words, bytes([byte])
            words = []


def _script(text: bytes) -> Iterator[tuple[str, str]]:
    for line in text.split(b"\n"):
        if b"'." not in line and b'".' not in line:
            continue
        quotes = [at for at, byte in enumerate(line) if byte in b"\"'"]
        at = 0
        while at + 1 < len(quotes):
            start, end = quotes[at], quotes[at + 1]
            before = line[max(0, quotes[at - 1] if at else 0) : start] if line[start + 1 : start + 2] == b"." else b""
            if before and _asks_for(before, is_begin=not at):
                yield _text(line[start + 1 : end]), ""
                at += 1
            at += 1


def _asks_for(before: bytes, *, is_begin: bool) -> bool:
    """`before`: from the quote before it, or the start of the line."""
    bare = before.rstrip(BLANKS).removesuffix(b"(").rstrip(BLANKS)
    for word in (b"from", b"import", b"require"):
        if bare.endswith(word):
            front = bare[: -len(word)]
            return (front[-1] not in WORD) if front else is_begin
    return False


def _java(text: bytes) -> Iterator[tuple[str, str]]:
    for line in text.split(b"\n"):
        statement, is_ended, _ = line.partition(b";")
        words = [word for word in statement.replace(b"\t", b" ").split(b" ") if word]
        if not is_ended or words[:1] != [b"import"]:
            continue
        named = words[2:] if len(words) == 3 and words[1] == b"static" else words[1:]  # noqa: PLR2004 - with the name
        bare = named[0].removesuffix(b".*") if len(named) == 1 else b""
        if bare and bare[-1] in WORD and not set(bare) - WORD - {ord(".")}:
            yield named[0].decode(), ""


def _c(text: bytes) -> Iterator[tuple[str, str]]:
    for line in text.split(b"\n"):
        rest = line.lstrip(BLANKS)
        word = rest[1:].lstrip(BLANKS)
        if not rest.startswith(b"#") or not word.startswith(b"include"):
            continue
        named = word[len(b"include") :].lstrip(BLANKS)
        if named.startswith(b'"') and named.find(b'"', 1) > 1:
            yield _text(named[1 : named.find(b'"', 1)]), ""


def _text(spelled: bytes) -> str:
    return spelled.decode("utf-8", "replace")


READERS: dict[str, Callable[[bytes], Iterator[tuple[str, str]]]] = {
    "python": _python,
    "go": _go,
    "go-mod": _go_mod,
    "rust": _rust,
    "java": _java,
    "c": _c,
    "c++": _c,
    **dict.fromkeys(("typescript", "tsx", "javascript", "jsx"), _script),
}


class _Tree:
    """The files of a repository in one split."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._at = {path: number for number, path in enumerate(paths)}
        self._modules: dict[str, str] = {}
        self._module_roots: set[str] = set()
        self._named: dict[str, list[str]] = {}
        self._whole: dict[str, list[int]] = {}
        for number, path in enumerate(paths):
            self._named.setdefault(posixpath.basename(path), []).append(path)
            if path.endswith((".go", ".java")) and not path.endswith("_test.go"):
                ending = path[path.rfind(".") :]
                self._whole.setdefault(f"{ending}:{posixpath.dirname(path)}", []).append(number)
        self._roots: dict[str, list[str]] = {}
        for path in self._named.get("__init__.py", ()):
            package = posixpath.dirname(path)
            outside = posixpath.dirname(package)
            if package and posixpath.join(outside, "__init__.py") not in self._at:
                self._roots.setdefault(posixpath.basename(package), []).append(outside)

    def add_module(self, path: str, imports: Names) -> None:
        for module, _ in imports if posixpath.basename(path) == "go.mod" else ():
            self._module_roots.add(posixpath.dirname(path))
            self._modules.setdefault(module, posixpath.dirname(path))

    def imported(self, number: int, language: str, imports: Names) -> list[int]:
        path = self._paths[number]
        ask = {
            "python": self._of_python,
            "go": self._of_go,
            "rust": self._of_rust,
            "java": self._of_java,
            "c": self._of_c,
            "c++": self._of_c,
        }.get(language, self._of_script)
        found: list[int] = []
        known = {number}
        for module, name in imports if language in READERS and language != "go-mod" else ():
            fresh = [one for one in ask(path, module, name) if one not in known]
            found += fresh
            known.update(fresh)
            if len(found) >= MOST_IMPORTS:
                break
        return sorted(found[:MOST_IMPORTS])

    def _there(self, paths: Sequence[str]) -> list[int]:
        return next(([self._at[path]] for path in paths if path in self._at), [])

    def _only(self, ending: str) -> list[int]:
        namesakes = self._named.get(posixpath.basename(ending), [])
        if len(namesakes) > MOST_NAMESAKES:
            return []
        found = [path for path in namesakes if path == ending or path.endswith("/" + ending)]
        return [self._at[found[0]]] if len(found) == 1 else []

    def _of_python(self, path: str, module: str, name: str) -> list[int]:
        names = module.strip(".") and module.lstrip(".")
        if names and ("" in names.split(".") or names.count(".") >= MOST_FOLDERS):
            return []
        level = len(module) - len(module.lstrip("."))
        above = _above(path, MOST_FOLDERS)
        if level:
            roots = above[level - 1 : level]
        else:
            free = [one for one in above if posixpath.join(one, "__init__.py") not in self._at]
            roots = [root for one in free for root in (one, posixpath.join(one, "src"))]
            roots += self._roots.get(names.split(".")[0], [])[:MOST_NAMESAKES]
        for root in roots:
            stem = posixpath.join(root, *names.split(".")) if names else root
            stems = ([posixpath.join(stem, name)] if name else []) + [stem]
            wanted = [one + ending for one in stems for ending in PYTHON_ENDINGS if one] if stem or name else []
            wanted += [ending[1:] for ending in PYTHON_ENDINGS if ending.startswith("/") and not stem]
            found = self._there(wanted)
            if found:
                return found
        return []

    def _of_go(self, path: str, module: str, _: str) -> list[int]:
        parts = module.split("/")
        if len(parts) > MOST_FOLDERS:
            return []
        longest, goes_on = module, "/"
        while longest not in self._modules and goes_on:
            longest, goes_on, _ = longest.rpartition("/")
        if longest in self._modules:
            names = [self._modules[longest], *module[len(longest) :].split("/")[1:]]
            return self._whole.get(".go:" + "/".join(filter(None, names)), [])
        if "." not in parts[0] or self._module_roots.intersection(_above(path, MOST_FOLDERS)):
            return []
        for at in range(len(parts)):
            found = self._whole.get(".go:" + "/".join(parts[at:]))
            if found:
                return found
        return []

    def _of_rust(self, path: str, module: str, _: str) -> list[int]:
        names = module.split("::")
        folder = posixpath.dirname(path)
        inside = posixpath.basename(path) in {"lib.rs", "main.rs", "mod.rs"}
        place: str | None = folder if inside else path.removesuffix(".rs")
        if names[0] == "crate":
            del names[0]
            above = _above(path, MOST_FOLDERS)
            heads = [one for one in above if self._there([posixpath.join(one, head) for head in ("lib.rs", "main.rs")])]
            place = next(iter([*heads, *(one for one in above if posixpath.basename(one) == "src")]), None)
        while names[:1] in (["self"], ["super"]):
            if names.pop(0) == "super":
                place = posixpath.dirname(place) if place else None
        if place is None:
            return []
        stems = [posixpath.join(place, *names[:size]) for size in range(len(names), 0, -1)]
        return self._there([stem + ending for stem in stems for ending in (".rs", "/mod.rs")])

    def _of_script(self, path: str, module: str, _: str) -> list[int]:
        place = _resolved(posixpath.dirname(path), module)
        if place is None:
            return []
        wanted = [place, *(place + ending for ending in SCRIPT_ENDINGS)]
        wanted += [posixpath.join(place, "index" + ending) for ending in SCRIPT_ENDINGS]
        stem, ending = place[: place.rfind(".")], place[place.rfind(".") :]
        return self._there(wanted + [stem + real for real in COMPILED_ENDINGS.get(ending, ())])

    def _of_java(self, path: str, module: str, _: str) -> list[int]:
        is_package = module.endswith(".*")
        names = module.removesuffix(".*").split(".")
        if "" in names[:-1] or len(names) + is_package > MOST_FOLDERS:
            return []
        above = _above(path, MOST_FOLDERS)
        for num_inner in range(min(3, len(names))):
            file = "/".join(names[: len(names) - num_inner]) + ".java"
            found = self._there([posixpath.join(one, file) for one in above]) or self._only(file)
            if found:
                return found
        folders = [posixpath.join(one, *names) for one in above] if is_package else []
        return next((own for one in folders if (own := self._whole.get(f".java:{one}"))), [])

    def _of_c(self, path: str, module: str, _: str) -> list[int]:
        beside, alone = _resolved(posixpath.dirname(path), module), _resolved("", module)
        if beside is None or module.startswith("/"):
            return []
        return self._there([beside]) or (self._only(alone) if alone else [])


def _above(path: str, most: int) -> list[str]:
    """The folders that a path is in, the innermost first."""
    names = path.split("/")[:-1]
    return ["/".join(names[:size]) for size in range(len(names), -1, -1)[:most]]


def _resolved(folder: str, named: str) -> str | None:
    names: list[str] = []
    for name in f"{folder}/{named}".split("/"):
        if name == "..":
            if not names:
                return None
            del names[-1]
        elif name and name != ".":
            names.append(name)
    return "/".join(names)


def _in_order(imported: Sequence[Sequence[int]]) -> tuple[list[int], int]:
    """Files behind their imports, and how many imports do not keep to it."""
    cycle = _cycles(imported)
    missing = [set(own) for own in imported]
    outside = [sum(cycle[one] != cycle[number] for one in own) for number, own in enumerate(imported)]
    asked_by: list[list[int]] = [[] for _ in imported]
    for number, own in enumerate(imported):
        for one in own:
            asked_by[one].append(number)
    ready = [number for number in range(len(imported)) if not missing[number]]
    stuck = [(len(own), number) for number, own in enumerate(missing) if own and not outside[number]]
    heapq.heapify(stuck)
    order: dict[int, None] = {}
    num_broken = 0
    while ready or stuck:
        if ready:
            number = heapq.heappop(ready)
        else:
            size, number = heapq.heappop(stuck)
            if number in order or size != len(missing[number]) or not size:
                continue
            num_broken += size
        order[number] = None
        for one in asked_by[number]:
            missing[one].discard(number)
            outside[one] -= cycle[one] != cycle[number]
            if one not in order and not missing[one]:
                heapq.heappush(ready, one)
            elif one not in order and not outside[one]:
                heapq.heappush(stuck, (len(missing[one]), one))
    return list(order), num_broken


def _cycles(imported: Sequence[Sequence[int]]) -> list[int]:
    """Kosaraju's algorithm: a search along the imports, and one against them from the last file on."""
    finished: list[int] = []
    is_seen = [False] * len(imported)
    for root in range(len(imported)):
        stack = [] if is_seen[root] else [(root, iter(imported[root]))]
        is_seen[root] = True
        while stack:
            number, rest = stack[-1]
            one = next((one for one in rest if not is_seen[one]), None)
            if one is None:
                finished.append(stack.pop()[0])
            else:
                is_seen[one] = True
                stack.append((one, iter(imported[one])))
    asked_by: list[list[int]] = [[] for _ in imported]
    for number, own in enumerate(imported):
        for one in own:
            asked_by[one].append(number)
    cycle = [-1] * len(imported)
    for root in reversed(finished):
        reached = [root] if cycle[root] < 0 else []
        while reached:
            number = reached.pop()
            if cycle[number] < 0:
                cycle[number] = root
                reached += (one for one in asked_by[number] if cycle[one] < 0)
    return cycle
