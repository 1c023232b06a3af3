"""Imports that a source file spells, and the files of its repository that they name.

No parser reads the text: whatever looks like an import at the start of a line counts, in a comment block or a string
too. RE2 finds them in linear time on any text. An import that names no file of the repository names nothing.

python      `import a.b`, `from .a import b`: from a package root of the repository, or relative
go          `import "module/path"`: all files of that folder but tests; the module's path is in go.mod
rust        `mod a;`, `use crate::a`, `use super::a`, `use self::a`
typescript  `import … from "./a"`, `export … from "./a"`, `require("./a")`; javascript, jsx and tsx alike
java        `import a.b.C;`: the file a/b/C.java
c, c++      `#include "a/b.h"`: relative to the file, else the only file whose path ends so
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import re2

MOST_IMPORTS = 256
"""Imports that are read of one file, and files that count as imported by it."""
MOST_FOLDERS = 32
"""Parent folders that are searched for a root, and parts of a name."""
MOST_NAMESAKES = 64
"""Files of one name, or roots of one package: if there are more, the name is ambiguous and resolves to no file."""

GO_MOD = "go-mod"
PYTHON_ENDINGS = ("/__init__.py", ".py", "/__init__.pyi", ".pyi")
SCRIPT_ENDINGS = (".ts", ".tsx", ".d.ts", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs")
COMPILED_ENDINGS = {".js": (".ts", ".tsx"), ".jsx": (".tsx",), ".mjs": (".mts",), ".cjs": (".cts",)}
"""TypeScript may name the file that its compiler will write."""


class Import(NamedTuple):
    module: str
    name: str = ""
    """Python: what is imported from the module."""


def imports_in(text: bytes, language: str) -> list[Import]:
    """Return the distinct imports of a text, in order; none if its language is not one of IMPORT_LANGUAGES."""
    reader = _READERS.get(language)
    if reader is None:
        return []
    found = reader(text.replace(b"\r\n", b"\n"))
    return list(dict.fromkeys(islice(found, MOST_IMPORTS)))


@cache
def _pattern(pattern: bytes) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes in, bytes out
    return re2.compile(pattern, options)


PYTHON = (
    rb"(?m)^[ \t]*(?:import[ \t]+([^\n#;(]*)"
    rb"|from[ \t]+([\w.]+)[ \t]+import[ \t]*(?:\(((?:[^)#]|#[^\n]*)*)|([^\n#;(]*)))"
)
GO = rb'(?m)^[ \t]*import[ \t]*(?:\(((?:[^)/]|//[^\n]*|/)*)|((?:[ \t][\w.]+)?[ \t]*"[^"\n]*"))'
GO_LINE = rb'(?m)^[ \t]*(?:[\w.]+[ \t]+)?"([^"\n]+)"'
GO_MODULE = rb'(?m)^[ \t]*module[ \t]+"?([^\s"]+)'
RUST = rb"(?m)^[ \t]*(?:pub(?:\([^)\n]*\))?[ \t]+)?(?:mod[ \t]+(\w+)[ \t]*;|use[ \t]+((?:[^;/]|//[^\n]*|/)*))"
SCRIPT = rb"""\b(?:from|import|require)[ \t]*\(?[ \t]*["'](\.[^"'\n]*)["']"""
JAVA = rb"(?m)^[ \t]*import[ \t]+(?:static[ \t]+)?([\w.]*\w(?:\.\*)?)[ \t]*;"
INCLUDE = rb'(?m)^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"'

NAME = re.compile(rb"[A-Za-z_]\w*\Z")
DOTTED = re.compile(rb"[A-Za-z_][\w.]*\Z")
USE_WORD = re.compile(rb"\w+|[{},]")


def _python(text: bytes) -> Iterator[Import]:
    joined = text.replace(b"\\\n", b" ")
    for match in _pattern(PYTHON).finditer(joined):
        modules, module, block, line = match.groups()
        if modules is not None:
            yield from (Import(one.decode()) for one in _first_words(modules) if DOTTED.match(one))
            continue
        names = re.sub(rb"#[^\n]*", b"", block) if block is not None else line
        for name in _first_words(names):
            if name == b"*" or NAME.match(name):
                yield Import(module.decode(), name.decode())


def _first_words(names: bytes) -> Iterator[bytes]:
    """`a.b as c, d` -> `a.b`, `d`"""
    for one in names.split(b","):
        words = one.split(None, 1)
        if words:
            yield words[0]


def _go(text: bytes) -> Iterator[Import]:
    for match in _pattern(GO).finditer(text):
        block, line = match.groups()
        named = re.sub(rb"//[^\n]*", b"", block) if block is not None else line
        yield from (Import(_text(one[1])) for one in _pattern(GO_LINE).finditer(named))


def _go_mod(text: bytes) -> Iterator[Import]:
    """The path of the module itself."""
    yield from (Import(_text(match[1])) for match in islice(_pattern(GO_MODULE).finditer(text), 1))


def _rust(text: bytes) -> Iterator[Import]:
    for match in _pattern(RUST).finditer(text):
        module, uses = match.groups()
        if module is not None:
            yield Import(f"self::{module.decode()}")
        else:
            yield from map(Import, _used_paths(re.sub(rb"//[^\n]*", b"", uses)))


def _used_paths(uses: bytes) -> Iterator[str]:
    """`crate::a::{b, c::D as E}` -> `crate::a::b`, `crate::a::c::D`; only those inside the crate."""
    before: list[bytes] = []
    """Names before the braces that are open."""
    outside: list[list[bytes]] = []
    path: list[bytes] = []
    is_renamed = False
    for match in USE_WORD.finditer(b"%b," % uses):
        word = match[0]
        if word not in (b"{", b"}", b","):
            is_renamed |= word == b"as"
            if not is_renamed:
                path.append(word)
            continue
        if word == b"{":
            outside.append(before)
            before = (before + path)[:MOST_FOLDERS]
        elif path:
            names = (before + path)[:MOST_FOLDERS]
            if names[0] in (b"crate", b"super", b"self"):
                kept = names[:-1] if len(names) > 1 and names[-1] == b"self" else names
                yield b"::".join(kept).decode()
        if word == b"}" and outside:
            before = outside.pop()
        path, is_renamed = [], False


def _script(text: bytes) -> Iterator[Import]:
    return (Import(_text(match[1])) for match in _pattern(SCRIPT).finditer(text))


def _java(text: bytes) -> Iterator[Import]:
    return (Import(match[1].decode()) for match in _pattern(JAVA).finditer(text))


def _c(text: bytes) -> Iterator[Import]:
    return (Import(_text(match[1])) for match in _pattern(INCLUDE).finditer(text))


def _text(spelled: bytes) -> str:
    return spelled.decode("utf-8", "replace")


_READERS: dict[str, Callable[[bytes], Iterator[Import]]] = {
    "python": _python,
    "go": _go,
    GO_MOD: _go_mod,
    "rust": _rust,
    "typescript": _script,
    "tsx": _script,
    "javascript": _script,
    "jsx": _script,
    "java": _java,
    "c": _c,
    "c++": _c,
}
IMPORT_LANGUAGES = frozenset(_READERS)


# Imports -> files of the same repository, by their paths alone.


class RepoFiles:
    """Files that a repository has in one split, by number."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._numbers = {path: number for number, path in enumerate(paths)}
        self._by_name: dict[str, list[int]] = {}
        self._by_folder: dict[tuple[str, str], list[int]] = {}
        """Files of Go and Java, whose imports may name a whole folder."""
        self._package_roots: dict[str, list[str]] = {}
        """Python: by name of a package, the folders that hold it and are no packages themselves."""
        self._go_modules: dict[str, str] = {}
        self._go_roots: set[str] = set()
        for number, path in enumerate(paths):
            folder, name = _split(path)
            self._by_name.setdefault(name, []).append(number)
            for ending in (".go", ".java"):
                if name.endswith(ending) and not name.endswith("_test.go"):
                    self._by_folder.setdefault((folder, ending), []).append(number)
            if name == "__init__.py" and folder:
                root, package = _split(folder)
                if not self._is_package(root):
                    self._package_roots.setdefault(package, []).append(root)

    def add_go_module(self, number: int, imports: Iterable[Import]) -> None:
        """A go.mod names the module that its folder is; to be known before files of Go are asked about."""
        folder, name = _split(self._paths[number])
        for one in imports:
            if name == "go.mod":
                self._go_modules.setdefault(one.module, folder)
                self._go_roots.add(folder)

    def imported_by(self, number: int, language: str, imports: Iterable[Import]) -> list[int]:
        """Return the numbers of the files that these imports name, ascending, without the file itself."""
        resolve = self._resolver(language)
        found: dict[int, None] = {}
        for one in imports:
            found |= dict.fromkeys(resolve(self._paths[number], one))
            found.pop(number, None)
            if len(found) >= MOST_IMPORTS:
                break
        return sorted(islice(found, MOST_IMPORTS))

    def _resolver(self, language: str) -> Callable[[str, Import], Iterable[int]]:
        match language:
            case "python":
                return self._python
            case "go":
                return self._go
            case "rust":
                return self._rust
            case "java":
                return self._java
            case "c" | "c++":
                return self._c
            case "typescript" | "tsx" | "javascript" | "jsx":
                return self._script
            case _:
                return lambda *_: ()

    def _first(self, paths: Iterable[str]) -> list[int]:
        """The first of these that is there."""
        return list(islice((self._numbers[path] for path in paths if path in self._numbers), 1))

    def _with_suffix(self, suffix: str) -> list[int]:
        """The file whose path ends so, if only one does."""
        namesakes = self._by_name.get(_split(suffix)[1], ())
        if len(namesakes) > MOST_NAMESAKES:
            return []
        found = [one for one in namesakes if f"/{self._paths[one]}".endswith(f"/{suffix}")]
        return found if len(found) == 1 else []

    def _is_package(self, folder: str) -> bool:
        return _joined(folder, "__init__.py") in self._numbers

    def _python(self, path: str, one: Import) -> list[int]:
        folder = _split(path)[0]
        names = one.module.lstrip(".").split(".") if one.module.lstrip(".") else []
        if not all(names) or len(names) > MOST_FOLDERS:
            return []
        num_dots = len(one.module) - len(one.module.lstrip("."))
        if num_dots:
            above = list(islice(_folders_above(folder), min(num_dots, MOST_FOLDERS)))
            roots = above[-1:] if len(above) == num_dots else []
        else:
            roots = list(self._python_roots(folder, names[0])) if names else []
        for root in roots:
            found = self._python_module([root, *names], one.name)
            if found:
                return found
        return []

    def _python_module(self, places: Sequence[str], name: str) -> list[int]:
        """A module of that name in the package, else the package or module itself."""
        stem = "/".join(filter(None, places))
        found = self._first(f"{_joined(stem, name)}{ending}" for ending in PYTHON_ENDINGS) if name else []
        return found or self._first(f"{stem}{ending}".lstrip("/") for ending in PYTHON_ENDINGS if stem or "/" in ending)

    def _python_roots(self, folder: str, package: str) -> Iterator[str]:
        """Folders above the file that are no packages, each with its src; then other roots that hold the package."""
        for root in islice(_folders_above(folder), MOST_FOLDERS):
            if not self._is_package(root):
                yield root
                yield _joined(root, "src")
        yield from self._package_roots.get(package, ())[:MOST_NAMESAKES]

    def _go(self, path: str, one: Import) -> list[int]:
        parts = one.module.split("/")
        if len(parts) > MOST_FOLDERS:
            return []
        for size in range(len(parts), 0, -1):
            root = self._go_modules.get("/".join(parts[:size]))
            if root is not None:
                return self._by_folder.get(("/".join(filter(None, [root, *parts[size:]])), ".go"), [])
        folders = set(islice(_folders_above(_split(path)[0]), MOST_FOLDERS))
        if folders & self._go_roots or "." not in parts[0]:
            return []  # of another module, or of the standard library
        suffixes = ("/".join(parts[size:]) for size in range(len(parts)))
        return next((self._by_folder[one, ".go"] for one in suffixes if (one, ".go") in self._by_folder), [])

    def _rust(self, path: str, one: Import) -> list[int]:
        names = one.module.split("::")
        folder, name = _split(path)
        stem = name.removesuffix(".rs")
        base: str | None = folder if stem in {"lib", "main", "mod"} else _joined(folder, stem)
        if names[0] == "crate":
            base, names = self._crate_root(folder), names[1:]
        while names and names[0] in {"self", "super"}:
            if names[0] == "super":
                base = _split(base)[0] if base else None
            names = names[1:]
        if base is None:
            return []
        stems = (_joined(base, "/".join(names[:size])) for size in range(len(names), 0, -1))
        return self._first(f"{one}{ending}" for one in stems for ending in (".rs", "/mod.rs"))

    def _crate_root(self, folder: str) -> str | None:
        above = list(islice(_folders_above(folder), MOST_FOLDERS))
        with_root = (one for one in above if {_joined(one, "lib.rs"), _joined(one, "main.rs")} & self._numbers.keys())
        return next(with_root, next((one for one in above if _split(one)[1] == "src"), None))

    def _script(self, path: str, one: Import) -> list[int]:
        stem = _normal(_joined(_split(path)[0], one.module))
        if stem is None:
            return []
        ends = ((end, real) for end, own in COMPILED_ENDINGS.items() if stem.endswith(end) for real in own)
        written = (f"{stem.removesuffix(end)}{real}" for end, real in ends)
        beside = (f"{stem}{ending}" for ending in SCRIPT_ENDINGS)
        index = (_joined(stem, f"index{ending}") for ending in SCRIPT_ENDINGS)
        return self._first([stem, *beside, *index, *written])

    def _java(self, path: str, one: Import) -> list[int]:
        *names, last = one.module.split(".")
        if len(names) >= MOST_FOLDERS or not all(names):
            return []
        names = names if last == "*" else [*names, last]
        above = list(islice(_folders_above(_split(path)[0]), MOST_FOLDERS))
        for size in range(
            len(names), max(0, len(names) - 3), -1
        ):  # a member of a class may be named, or one in a class
            suffix = f"{'/'.join(names[:size])}.java"
            found = self._first(_joined(root, suffix) for root in above) or self._with_suffix(suffix)
            if found:
                return found
        folders = (_joined(root, "/".join(names)) for root in above) if last == "*" else iter(())
        return next((self._by_folder[one, ".java"] for one in folders if (one, ".java") in self._by_folder), [])

    def _c(self, path: str, one: Import) -> list[int]:
        beside, alone = _normal(_joined(_split(path)[0], one.module)), _normal(one.module)
        if one.module.startswith("/") or beside is None:
            return []
        return self._first([beside]) or (self._with_suffix(alone) if alone else [])


def _split(path: str) -> tuple[str, str]:
    """`a/b/c.py` -> `a/b`, `c.py`"""
    folder, _, name = path.rpartition("/")
    return folder, name


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _folders_above(folder: str) -> Iterator[str]:
    """`a/b` -> `a/b`, `a`, ``"""
    yield folder
    while folder:
        folder = _split(folder)[0]
        yield folder


def _normal(path: str) -> str | None:
    """`a/./b/../c` -> `a/c`; None for a path that leads out of the repository."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and not parts:
            return None
        if part == "..":
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return "/".join(parts)
