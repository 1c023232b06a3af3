"""Check the order of files with --pack repo (check `windows`).

In each repository, the tokens of a file must be contiguous, and the files must be in the configured order. This order
is computed again: by path, shuffled with the seed, or by the imports in the texts of the rows. The code is independent
of the build: it reads imports line by line, without regular expressions, and finds import cycles with Kosaraju's
algorithm. A segment is the part of a file that is in one packed row.
"""

import hashlib
import heapq
import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import NamedTuple

import msgspec

from gristmill.checks.decoder import Decoder
from gristmill.checks.file_rows import FilesTable, KeptFile
from gristmill.checks.findings import Faults, value_text
from gristmill.checks.requirements import Settings
from gristmill.checks.runs import TokenSpan
from gristmill.checks.windows_by_file import RepoKey, Rows, Segment
from gristmill.core.layout import MANIFEST
from gristmill.core.manifest import OrderFacts
from gristmill.core.records import Split
from gristmill.runners.local import LocalRunner
from gristmill.sources.imports import (
    COMPILED_ENDINGS,
    MAX_FOLDERS,
    MAX_IMPORTS,
    MAX_SAME_NAME,
    PYTHON_ENDINGS,
    SCRIPT_ENDINGS,
)

CHECK = "windows"
ORDER_NAMES = {"path": "the order by path", "imports": "the order by imports", "shuffle": "the shuffled order"}
"""Names in messages, keyed by value of --repo-order."""
TOKENS_PER_TASK = 1 << 18
SPACES = b" \t"
WORD_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
DIGITS = frozenset(b"0123456789")


class RepoOrders(NamedTuple):
    by_repo: dict[RepoKey, list[str]]
    """Paths in the expected order, or in the order of the rows if the expected order cannot be computed."""
    skip_reason: str | None
    """Reason why the expected order was not computed, or None if it was."""


def check_repo_order(
    rows: Rows, table: FilesTable, settings: Settings, runner: LocalRunner, faults: Faults
) -> RepoOrders:
    """Compute the expected order of the files in each repository and compare it with the rows."""
    if not settings.is_packed_by_repo:
        return RepoOrders({}, None)
    files: dict[RepoKey, list[KeptFile]] = {}
    for file in sorted(table.kept.values(), key=lambda file: file.key):
        files.setdefault((file.split, file.repo), []).append(file)
    if settings.repo_order == "imports" and not settings.decoder.is_close:
        found = {
            key: list(dict.fromkeys(one.path for one in segments))
            if settings.fim.is_enabled  # groups of segments in shared rows may be in any order
            else _check_contiguous(segments, key, faults)
            for key, segments in rows.layouts.items()
        }
        return RepoOrders(found, settings.no_tokenizer_reason or "this tokenizer does not reproduce the text")
    expected = {key: [file.path for file in repo_files] for key, repo_files in files.items()}
    if settings.repo_order == "imports":
        expected = _order_by_imports(files, rows, settings, runner, faults)
    elif settings.repo_order == "shuffle":
        seed = settings.repo_order_seed
        expected = {key: sorted(paths, key=partial(_shuffle_key, seed, key[1])) for key, paths in expected.items()}
    for key, segments in rows.layouts.items():
        in_order = _sort_groups(segments, expected.get(key, ())) if settings.fim.is_enabled else segments
        paths = _check_contiguous(in_order, key, faults)
        pairs = enumerate(zip(paths, expected.get(key, ()), strict=False))  # an extra file is reported by another check
        at = next((at for at, (one, other) in pairs if one != other), None)
        if at is not None:
            segment = next(one for one in rows.layouts[key] if one.path == paths[at])
            order = ORDER_NAMES[settings.repo_order]
            message = f"{order} requires {key[1]}/{expected[key][at]} here, not this file"
            faults.add(CHECK, message, file=segment.file, row=segment.row, path=f"{key[1]}/{paths[at]}")
    return RepoOrders(expected, None)


def _sort_groups(segments: Sequence[Segment], paths: Sequence[str]) -> list[Segment]:
    """Sort groups of segments by the position of their first file in `paths`.

    The segments of a group have the same row and segment id. A fill-in-the-middle window is not cut, so a row
    may have space left, which any other group may fill.
    """
    rank = {path: number for number, path in enumerate(paths)}
    groups = [list(group) for _, group in groupby(segments, key=lambda one: (one.file, one.row, one.segment_id))]
    groups.sort(key=lambda group: (rank.get(group[0].path, -1), group[0].start))
    return [segment for group in groups for segment in group]


def _check_contiguous(segments: Sequence[Segment], key: RepoKey, faults: Faults) -> list[str]:
    """Return the paths in the order of their first segments.

    Add a fault if a file is not contiguous, or if its tokens are not in ascending order.
    """
    order: dict[str, None] = {}
    for path, path_segments in groupby(segments, key=lambda one: one.path):
        parts = list(path_segments)
        if path in order:
            message = "the file is not contiguous: other files of the repository are between its tokens"
            faults.add(CHECK, message, file=parts[0].file, row=parts[0].row, path=f"{key[1]}/{path}")
        for before, after in pairwise(parts):
            if after.start <= before.start:
                message = f"the segment at token {after.start} follows the segment at token {before.start}"
                faults.add(CHECK, message, file=after.file, row=after.row, path=f"{key[1]}/{path}")
        order.setdefault(path)
    return list(order)


def _shuffle_key(seed: int, repo: str, path: str) -> tuple[int, str]:
    content = f"repo order\0{seed}\0{repo}\0{path}".encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little"), path


# The order by imports, computed from the texts.


class TokenizedFile(NamedTuple):
    language: str
    spans: list[TokenSpan]


def _order_by_imports(
    files: dict[RepoKey, list[KeptFile]], rows: Rows, settings: Settings, runner: LocalRunner, faults: Faults
) -> dict[RepoKey, list[str]]:
    read = runner.map(partial(read_imports, settings.decoder), list(_tasks(files, rows)))
    all_imports = (imports for batch in read for imports in batch)
    expected: dict[RepoKey, list[str]] = {}
    counts: dict[Split, Counter[str]] = {split: Counter() for split in Split}
    for key, repo_files in files.items():
        tree = _RepoTree([file.path for file in repo_files])
        imports_by_file = [next(all_imports) if file.language in READERS else [] for file in repo_files]
        for file, imports in zip(repo_files, imports_by_file, strict=True):
            if file.language == "go-mod":
                tree.add_module(file.path, imports)
        resolved = [
            tree.resolve_imports(index, file.language, imports)
            for index, (file, imports) in enumerate(zip(repo_files, imports_by_file, strict=True))
        ]
        order, num_broken = _sort_by_imports(resolved)
        expected[key] = [repo_files[index].path for index in order]
        counts[key[0]] += Counter(repos=any(resolved), imports=sum(map(len, resolved)), broken=num_broken)
    for split, found in counts.items():
        facts = (settings.manifest.packing or {}).get(split)
        recorded = None if facts is None else facts.order
        order_facts = OrderFacts(repos=found["repos"], imports=found["imports"], broken=found["broken"])
        if recorded != order_facts:
            texts = [value_text(msgspec.to_builtins(one)) for one in (recorded, order_facts)]
            faults.add(CHECK, f"packing.{split}.order is {texts[0]}, expected {texts[1]}", file=MANIFEST)
    return expected


def _tasks(files: dict[RepoKey, list[KeptFile]], rows: Rows) -> Iterator[list[TokenizedFile]]:
    batch, size = list[TokenizedFile](), 0
    for repo_files in files.values():
        for file in repo_files:
            if file.language not in READERS:
                continue
            runs = rows.by_file.get(file.key, ())
            batch.append(TokenizedFile(file.language, runs[0].run.spans if runs else []))
            size += file.tokens
            if size >= TOKENS_PER_TASK:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


Imports = list[tuple[str, str]]
"""Pairs of a module and a name imported from the module. The name may be empty."""


def read_imports(decoder: Decoder, files: list[TokenizedFile]) -> list[Imports]:
    return [_imports_in(file, decoder) for file in files]


def _imports_in(file: TokenizedFile, decoder: Decoder) -> Imports:
    text = b"\n".join(decoder.tokenizer.decode(span.ids) for span in file.spans)
    found: Imports = []
    for one in READERS[file.language](b"\n".join(text.split(b"\r\n"))):
        found.append(one)
        if len(found) == MAX_IMPORTS:
            break
    return list(dict.fromkeys(found))


Lines = Iterator[bytes]


def _after_word(line: bytes, word: bytes) -> bytes | None:
    """Return the text after `word` and spaces, or None if the line does not begin with this word and a space."""
    rest = line.lstrip(SPACES)[len(word) :]
    return rest.lstrip(SPACES) if line.lstrip(SPACES).startswith(word) and rest[:1] in {b" ", b"\t"} else None


def _leading_bytes(text: bytes, allowed: frozenset[int]) -> bytes:
    """Return the longest prefix of a text that contains only allowed bytes."""
    size = next((at for at, byte in enumerate(text) if byte not in allowed), len(text))
    return text[:size]


def _until_any(line: bytes, characters: bytes) -> bytes:
    """Return the part of a line before the first of these characters."""
    offsets = [at for at in map(line.find, (characters[at : at + 1] for at in range(len(characters)))) if at >= 0]
    return line[: min(offsets, default=len(line))]


def _block_lines(first: bytes, lines: Lines, comment: bytes, end: bytes) -> Iterator[bytes]:
    """Yield the lines of a block without comments. `first` is its first line, and the text `end` ends the block."""
    line: bytes | None = first
    while line is not None:
        line = line.partition(comment)[0]
        yield line.partition(end)[0]
        if end in line:
            return
        line = next(lines, None)


def _is_name(word: bytes) -> bool:
    return bool(word) and word[0] not in DIGITS and not set(word) - WORD_BYTES


def _python_imports(text: bytes) -> Iterator[tuple[str, str]]:
    lines = iter(b" ".join(text.split(b"\\\n")).split(b"\n"))
    for line in lines:
        modules = _after_word(line, b"import")
        if modules is not None:
            for word in _first_words(_until_any(modules, b"#;(")):
                if word[0] not in DIGITS | {ord(".")} and not set(word) - WORD_BYTES - {ord(".")}:
                    yield word.decode(), ""
            continue
        rest = _after_word(line, b"from")
        module = _leading_bytes(rest or b"", WORD_BYTES | {ord(".")})
        after_module = (rest or b"")[len(module) :]
        if not module or after_module[:1] not in {b" ", b"\t"} or not after_module.lstrip(SPACES).startswith(b"import"):
            continue
        names = after_module.lstrip(SPACES)[len(b"import") :].lstrip(SPACES)
        is_block = names.startswith(b"(")
        joined = b"\n".join(_block_lines(names[1:], lines, b"#", b")")) if is_block else _until_any(names, b"#;(")
        yield from ((module.decode(), word.decode()) for word in _first_words(joined) if word == b"*" or _is_name(word))


def _first_words(names: bytes) -> list[bytes]:
    """Return the first word of each comma-separated item."""
    return [one.split()[0] for one in names.split(b",") if one.split()]


def _go_imports(text: bytes) -> Iterator[tuple[str, str]]:
    lines = iter(text.split(b"\n"))
    for line in lines:
        if not line.lstrip(SPACES).startswith(b"import"):
            continue
        rest = line.lstrip(SPACES)[len(b"import") :]
        is_block = rest.lstrip(SPACES).startswith(b"(")
        if not is_block and rest[:1] not in {b" ", b"\t", b'"'}:
            continue
        for one in _block_lines(rest.lstrip(SPACES)[1:], lines, b"//", b")") if is_block else [rest]:
            alias, quote, path = one.lstrip(SPACES).partition(b'"')
            word, is_closed = alias.rstrip(SPACES), b'"' in path
            is_alias = not alias or (word != alias and not set(word) - WORD_BYTES - {ord(".")})
            if quote and is_closed and is_alias and not path.startswith(b'"'):
                yield _to_text(path.partition(b'"')[0]), ""


def _go_mod_module(text: bytes) -> Iterator[tuple[str, str]]:
    for line in text.split(b"\n"):
        rest = _after_word(line, b"module")
        if rest is not None:
            path = _until_any(rest.removeprefix(b'"'), b'\t\f\r "')
            if path:
                yield _to_text(path), ""
                return


def _rust_imports(text: bytes) -> Iterator[tuple[str, str]]:
    lines = iter(text.split(b"\n"))
    for line in lines:
        rest = _strip_pub(line.lstrip(SPACES))
        module, uses = _after_word(rest, b"mod"), _after_word(rest, b"use")
        if module is not None:
            name = _leading_bytes(module, WORD_BYTES)
            if name and module[len(name) :].lstrip(SPACES).startswith(b";"):
                yield f"self::{name.decode()}", ""
        elif uses is not None:
            yield from ((path, "") for path in _use_paths(b"\n".join(_block_lines(uses, lines, b"//", b";"))))


def _strip_pub(line: bytes) -> bytes:
    """Remove the visibility of a Rust item: `pub(crate) use a;` becomes `use a;`."""
    if not line.startswith(b"pub"):
        return line
    rest = line[3:]
    if rest.startswith(b"("):
        _, closed, rest = rest.partition(b")")
        if not closed:
            return line
    return rest.lstrip(SPACES) if rest[:1] in {b" ", b"\t"} else line


def _use_paths(uses: bytes) -> Iterator[str]:
    prefix: list[bytes] = []
    depths: list[int] = []
    for item, delimiter in _use_items(uses):
        words = item[: item.index(b"as")] if b"as" in item else item
        if delimiter == b"{":
            depths.append(len(prefix))
            prefix += words
            continue
        if words:
            names = [*prefix[:MAX_FOLDERS], *words][:MAX_FOLDERS]
            if names[0] in {b"crate", b"super", b"self"}:
                is_self = names[-1] == b"self" and names != [b"self"]
                yield b"::".join(names[:-1] if is_self else names).decode()
        if delimiter == b"}" and depths:
            del prefix[depths.pop() :]


def _use_items(uses: bytes) -> Iterator[tuple[list[bytes], bytes]]:
    """Yield lists of words, and for each list the brace or comma that follows the words."""
    words: list[bytes] = []
    word = bytearray()
    for byte in (*uses, ord(",")):
        if byte in WORD_BYTES:
            word.append(byte)
            continue
        if word:
            words.append(bytes(word))
            word.clear()
        if byte in b"{},":
            yield words, bytes([byte])
            words = []


def _script_imports(text: bytes) -> Iterator[tuple[str, str]]:
    for line in text.split(b"\n"):
        if b"'." not in line and b'".' not in line:
            continue
        quotes = [at for at, byte in enumerate(line) if byte in b"\"'"]
        at = 0
        while at + 1 < len(quotes):
            start, end = quotes[at], quotes[at + 1]
            before = line[max(0, quotes[at - 1] if at else 0) : start] if line[start + 1 : start + 2] == b"." else b""
            if before and _is_import(before, is_line_start=not at):
                yield _to_text(line[start + 1 : end]), ""
                at += 1
            at += 1


def _is_import(before: bytes, *, is_line_start: bool) -> bool:
    """True if the text before a quoted path ends with `from`, `import` or `require`.

    `before` begins at the previous quote or, if `is_line_start`, at the start of the line.
    """
    bare = before.rstrip(SPACES).removesuffix(b"(").rstrip(SPACES)
    for word in (b"from", b"import", b"require"):
        if bare.endswith(word):
            front = bare[: -len(word)]
            return (front[-1] not in WORD_BYTES) if front else is_line_start
    return False


def _java_imports(text: bytes) -> Iterator[tuple[str, str]]:
    for line in text.split(b"\n"):
        statement, is_ended, _ = line.partition(b";")
        words = [word for word in statement.replace(b"\t", b" ").split(b" ") if word]
        if not is_ended or words[:1] != [b"import"]:
            continue
        imported = words[2:] if len(words) == 3 and words[1] == b"static" else words[1:]  # noqa: PLR2004 - import static NAME
        bare = imported[0].removesuffix(b".*") if len(imported) == 1 else b""
        if bare and bare[-1] in WORD_BYTES and not set(bare) - WORD_BYTES - {ord(".")}:
            yield imported[0].decode(), ""


def _c_includes(text: bytes) -> Iterator[tuple[str, str]]:
    for line in text.split(b"\n"):
        rest = line.lstrip(SPACES)
        word = rest[1:].lstrip(SPACES)
        if not rest.startswith(b"#") or not word.startswith(b"include"):
            continue
        path = word[len(b"include") :].lstrip(SPACES)
        if path.startswith(b'"') and path.find(b'"', 1) > 1:
            yield _to_text(path[1 : path.find(b'"', 1)]), ""


def _to_text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


READERS: dict[str, Callable[[bytes], Iterator[tuple[str, str]]]] = {
    "python": _python_imports,
    "go": _go_imports,
    "go-mod": _go_mod_module,
    "rust": _rust_imports,
    "java": _java_imports,
    "c": _c_includes,
    "c++": _c_includes,
    **dict.fromkeys(("typescript", "tsx", "javascript", "jsx"), _script_imports),
}


class _RepoTree:
    """Files of a repository in one split. Resolves imports to files."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._index_by_path = {path: index for index, path in enumerate(paths)}
        self._modules: dict[str, str] = {}
        self._module_roots: set[str] = set()
        self._paths_by_name: dict[str, list[str]] = {}
        self._files_by_folder: dict[str, list[int]] = {}
        for index, path in enumerate(paths):
            self._paths_by_name.setdefault(posixpath.basename(path), []).append(path)
            if path.endswith((".go", ".java")) and not path.endswith("_test.go"):
                ending = path[path.rfind(".") :]
                self._files_by_folder.setdefault(f"{ending}:{posixpath.dirname(path)}", []).append(index)
        # Folders that contain top-level Python packages, keyed by package name.
        self._roots: dict[str, list[str]] = {}
        for path in self._paths_by_name.get("__init__.py", ()):
            package = posixpath.dirname(path)
            parent = posixpath.dirname(package)
            if package and posixpath.join(parent, "__init__.py") not in self._index_by_path:
                self._roots.setdefault(posixpath.basename(package), []).append(parent)

    def add_module(self, path: str, imports: Imports) -> None:
        for module, _ in imports if posixpath.basename(path) == "go.mod" else ():
            self._module_roots.add(posixpath.dirname(path))
            self._modules.setdefault(module, posixpath.dirname(path))

    def resolve_imports(self, index: int, language: str, imports: Imports) -> list[int]:
        """Return the indices of the files that the file at `index` imports."""
        path = self._paths[index]
        resolve = {
            "python": self._resolve_python,
            "go": self._resolve_go,
            "rust": self._resolve_rust,
            "java": self._resolve_java,
            "c": self._resolve_c,
            "c++": self._resolve_c,
        }.get(language, self._resolve_script)
        found: list[int] = []
        seen = {index}
        for module, name in imports if language in READERS and language != "go-mod" else ():
            fresh = [one for one in resolve(path, module, name) if one not in seen]
            found += fresh
            seen.update(fresh)
            if len(found) >= MAX_IMPORTS:
                break
        return sorted(found[:MAX_IMPORTS])

    def _first_existing(self, paths: Sequence[str]) -> list[int]:
        """Return a list with the index of the first of these paths that exists, or an empty list."""
        return next(([self._index_by_path[path]] for path in paths if path in self._index_by_path), [])

    def _only_match(self, ending: str) -> list[int]:
        """Return a list with the index of the only file whose path ends with `ending`, or an empty list."""
        same_name = self._paths_by_name.get(posixpath.basename(ending), [])
        if len(same_name) > MAX_SAME_NAME:
            return []
        found = [path for path in same_name if path == ending or path.endswith("/" + ending)]
        return [self._index_by_path[found[0]]] if len(found) == 1 else []

    def _resolve_python(self, path: str, module: str, name: str) -> list[int]:
        names = module.strip(".") and module.lstrip(".")
        if names and ("" in names.split(".") or names.count(".") >= MAX_FOLDERS):
            return []
        level = len(module) - len(module.lstrip("."))
        parents = _parent_folders(path, MAX_FOLDERS)
        if level:
            roots = parents[level - 1 : level]
        else:
            non_packages = [one for one in parents if posixpath.join(one, "__init__.py") not in self._index_by_path]
            roots = [root for one in non_packages for root in (one, posixpath.join(one, "src"))]
            roots += self._roots.get(names.split(".")[0], [])[:MAX_SAME_NAME]
        for root in roots:
            stem = posixpath.join(root, *names.split(".")) if names else root
            stems = ([posixpath.join(stem, name)] if name else []) + [stem]
            candidates = [one + ending for one in stems for ending in PYTHON_ENDINGS if one] if stem or name else []
            candidates += [ending[1:] for ending in PYTHON_ENDINGS if ending.startswith("/") and not stem]
            found = self._first_existing(candidates)
            if found:
                return found
        return []

    def _resolve_go(self, path: str, module: str, _: str) -> list[int]:
        parts = module.split("/")
        if len(parts) > MAX_FOLDERS:
            return []
        prefix, separator = module, "/"
        while prefix not in self._modules and separator:
            prefix, separator, _ = prefix.rpartition("/")
        if prefix in self._modules:
            names = [self._modules[prefix], *module[len(prefix) :].split("/")[1:]]
            return self._files_by_folder.get(".go:" + "/".join(filter(None, names)), [])
        if "." not in parts[0] or self._module_roots.intersection(_parent_folders(path, MAX_FOLDERS)):
            return []
        for at in range(len(parts)):
            found = self._files_by_folder.get(".go:" + "/".join(parts[at:]))
            if found:
                return found
        return []

    def _resolve_rust(self, path: str, module: str, _: str) -> list[int]:
        names = module.split("::")
        folder = posixpath.dirname(path)
        is_folder_module = posixpath.basename(path) in {"lib.rs", "main.rs", "mod.rs"}
        base: str | None = folder if is_folder_module else path.removesuffix(".rs")
        if names[0] == "crate":
            del names[0]
            parents = _parent_folders(path, MAX_FOLDERS)
            crate_folders = [
                one
                for one in parents
                if self._first_existing([posixpath.join(one, head) for head in ("lib.rs", "main.rs")])
            ]
            base = next(iter([*crate_folders, *(one for one in parents if posixpath.basename(one) == "src")]), None)
        while names[:1] in (["self"], ["super"]):
            if names.pop(0) == "super":
                base = posixpath.dirname(base) if base else None
        if base is None:
            return []
        stems = [posixpath.join(base, *names[:size]) for size in range(len(names), 0, -1)]
        return self._first_existing([stem + ending for stem in stems for ending in (".rs", "/mod.rs")])

    def _resolve_script(self, path: str, module: str, _: str) -> list[int]:
        base = _resolve_path(posixpath.dirname(path), module)
        if base is None:
            return []
        candidates = [base, *(base + ending for ending in SCRIPT_ENDINGS)]
        candidates += [posixpath.join(base, "index" + ending) for ending in SCRIPT_ENDINGS]
        stem, ending = base[: base.rfind(".")], base[base.rfind(".") :]
        return self._first_existing(candidates + [stem + real for real in COMPILED_ENDINGS.get(ending, ())])

    def _resolve_java(self, path: str, module: str, _: str) -> list[int]:
        is_package = module.endswith(".*")
        names = module.removesuffix(".*").split(".")
        if "" in names[:-1] or len(names) + is_package > MAX_FOLDERS:
            return []
        parents = _parent_folders(path, MAX_FOLDERS)
        for num_inner in range(min(3, len(names))):
            file = "/".join(names[: len(names) - num_inner]) + ".java"
            found = self._first_existing([posixpath.join(one, file) for one in parents]) or self._only_match(file)
            if found:
                return found
        folders = [posixpath.join(one, *names) for one in parents] if is_package else []
        return next((files for one in folders if (files := self._files_by_folder.get(f".java:{one}"))), [])

    def _resolve_c(self, path: str, module: str, _: str) -> list[int]:
        relative, from_root = _resolve_path(posixpath.dirname(path), module), _resolve_path("", module)
        if relative is None or module.startswith("/"):
            return []
        return self._first_existing([relative]) or (self._only_match(from_root) if from_root else [])


def _parent_folders(path: str, max_folders: int) -> list[str]:
    """Return the folders that contain a path, innermost first, up to `max_folders` of them."""
    names = path.split("/")[:-1]
    return ["/".join(names[:size]) for size in range(len(names), -1, -1)[:max_folders]]


def _resolve_path(folder: str, relative: str) -> str | None:
    """Resolve a path relative to a folder. Return None if the result is outside the repository."""
    names: list[str] = []
    for name in f"{folder}/{relative}".split("/"):
        if name == "..":
            if not names:
                return None
            del names[-1]
        elif name and name != ".":
            names.append(name)
    return "/".join(names)


def _sort_by_imports(imports: Sequence[Sequence[int]]) -> tuple[list[int], int]:
    """Sort files so that each file follows the files that it imports.

    `imports` contains, for each file, the indices of the files that it imports. In a cycle, the next file is the file
    with the fewest pending imports (of files that have no position yet). Return the sorted indices of the files, and
    the number of imports that violate the order.
    """
    cycle = _find_cycles(imports)
    pending = [set(imported) for imported in imports]
    num_external = [sum(cycle[one] != cycle[index] for one in imported) for index, imported in enumerate(imports)]
    importers: list[list[int]] = [[] for _ in imports]
    for index, imported in enumerate(imports):
        for one in imported:
            importers[one].append(index)
    ready = [index for index in range(len(imports)) if not pending[index]]
    in_cycle = [
        (len(imported), index) for index, imported in enumerate(pending) if imported and not num_external[index]
    ]
    heapq.heapify(in_cycle)
    order: dict[int, None] = {}
    num_broken = 0
    while ready or in_cycle:
        if ready:
            index = heapq.heappop(ready)
        else:
            size, index = heapq.heappop(in_cycle)
            if index in order or size != len(pending[index]) or not size:
                continue
            num_broken += size
        order[index] = None
        for one in importers[index]:
            pending[one].discard(index)
            num_external[one] -= cycle[one] != cycle[index]
            if one not in order and not pending[one]:
                heapq.heappush(ready, one)
            elif one not in order and not num_external[one]:
                heapq.heappush(in_cycle, (len(pending[one]), one))
    return list(order), num_broken


def _find_cycles(imports: Sequence[Sequence[int]]) -> list[int]:
    """Return, for each file, the index of a file that represents its import cycle.

    A file in no cycle represents itself. The algorithm is Kosaraju's: search along the imports, then search against the
    imports, starting with the file finished last.
    """
    finished: list[int] = []
    is_seen = [False] * len(imports)
    for root in range(len(imports)):
        stack = [] if is_seen[root] else [(root, iter(imports[root]))]
        is_seen[root] = True
        while stack:
            index, rest = stack[-1]
            one = next((one for one in rest if not is_seen[one]), None)
            if one is None:
                finished.append(stack.pop()[0])
            else:
                is_seen[one] = True
                stack.append((one, iter(imports[one])))
    importers: list[list[int]] = [[] for _ in imports]
    for index, imported in enumerate(imports):
        for one in imported:
            importers[one].append(index)
    cycle = [-1] * len(imports)
    for root in reversed(finished):
        reached = [root] if cycle[root] < 0 else []
        while reached:
            index = reached.pop()
            if cycle[index] < 0:
                cycle[index] = root
                reached += (one for one in importers[index] if cycle[one] < 0)
    return cycle
