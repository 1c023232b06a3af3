"""Find the imports of a source file, and the files of its repository that the imports refer to.

The text is not parsed: anything that looks like an import is treated as one, even in a comment or a string. RE2 finds
imports in linear time on any text. An import that refers to no file of the repository is ignored.

python      `import a.b`, `from .a import b`: relative to a package root of the repository, or to the file
go          `import "module/path"`: all files of that folder except tests; go.mod declares the module path
rust        `mod a;`, `use crate::a`, `use super::a`, `use self::a`
typescript  `import … from "./a"`, `export … from "./a"`, `require("./a")`; also in javascript, jsx and tsx
java        `import a.b.C;`: the file a/b/C.java
c, c++      `#include "a/b.h"`: relative to the file, or else the only file whose path ends in `a/b.h`
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import re2

MAX_IMPORTS = 256
"""Maximum number of imports that are read from a file, and of files that these imports may resolve to."""
MAX_FOLDERS = 32
"""Maximum number of parent folders that are searched, and of parts in an imported name."""
MAX_SAME_NAME = 64
"""Maximum number of files with the name of a C, C++ or Java import, and of folders that contain a Python package.

If more files have the name, their paths are not compared with the import. Of more folders, only the first are searched.
"""

GO_MOD = "go-mod"
PYTHON_ENDINGS = ("/__init__.py", ".py", "/__init__.pyi", ".pyi")
SCRIPT_ENDINGS = (".ts", ".tsx", ".d.ts", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs")
COMPILED_ENDINGS = {".js": (".ts", ".tsx"), ".jsx": (".tsx",), ".mjs": (".mts",), ".cjs": (".cts",)}
"""Endings of compiled files and of their sources. TypeScript code may import the file that the compiler will write."""


class Import(NamedTuple):
    """An import in a source file."""

    module: str
    name: str = ""
    """Name that is imported from the module. Empty for `import a.b`, and in languages other than Python."""


def find_imports(text: bytes, language: str) -> list[Import]:
    """Return the first MAX_IMPORTS imports of a text, in text order and without repetitions.

    The list is empty for languages not in IMPORT_LANGUAGES.
    """
    finder = _FINDERS.get(language)
    if finder is None:
        return []
    found = finder(text.replace(b"\r\n", b"\n"))
    return list(dict.fromkeys(islice(found, MAX_IMPORTS)))


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
            yield from (Import(word.decode()) for word in _first_words(modules) if DOTTED.match(word))
            continue
        names = re.sub(rb"#[^\n]*", b"", block) if block is not None else line
        for name in _first_words(names):
            if name == b"*" or NAME.match(name):
                yield Import(module.decode(), name.decode())


def _first_words(names: bytes) -> Iterator[bytes]:
    """Yield the first word of each item: `a.b as c, d` -> `a.b`, `d`."""
    for item in names.split(b","):
        words = item.split(None, 1)
        if words:
            yield words[0]


def _go(text: bytes) -> Iterator[Import]:
    for match in _pattern(GO).finditer(text):
        block, line = match.groups()
        paths = re.sub(rb"//[^\n]*", b"", block) if block is not None else line
        yield from (Import(_text(path[1])) for path in _pattern(GO_LINE).finditer(paths))


def _go_mod(text: bytes) -> Iterator[Import]:
    """Yield the path of the module that a go.mod declares."""
    yield from (Import(_text(match[1])) for match in islice(_pattern(GO_MODULE).finditer(text), 1))


def _rust(text: bytes) -> Iterator[Import]:
    for match in _pattern(RUST).finditer(text):
        module, uses = match.groups()
        if module is not None:
            yield Import(f"self::{module.decode()}")
        else:
            yield from map(Import, _used_paths(re.sub(rb"//[^\n]*", b"", uses)))


def _used_paths(uses: bytes) -> Iterator[str]:
    """Yield the paths of a Rust `use` that are inside the crate.

    For example `crate::a::{b, c::D as E}` -> `crate::a::b`, `crate::a::c::D`.
    """
    prefix: list[bytes] = []
    """Names before the open braces."""
    outer_prefixes: list[list[bytes]] = []
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
            outer_prefixes.append(prefix)
            prefix = (prefix + path)[:MAX_FOLDERS]
        elif path:
            names = (prefix + path)[:MAX_FOLDERS]
            if names[0] in (b"crate", b"super", b"self"):
                kept = names[:-1] if len(names) > 1 and names[-1] == b"self" else names
                yield b"::".join(kept).decode()
        if word == b"}" and outer_prefixes:
            prefix = outer_prefixes.pop()
        path, is_renamed = [], False


def _script(text: bytes) -> Iterator[Import]:
    return (Import(_text(match[1])) for match in _pattern(SCRIPT).finditer(text))


def _java(text: bytes) -> Iterator[Import]:
    return (Import(match[1].decode()) for match in _pattern(JAVA).finditer(text))


def _c(text: bytes) -> Iterator[Import]:
    return (Import(_text(match[1])) for match in _pattern(INCLUDE).finditer(text))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


_FINDERS: dict[str, Callable[[bytes], Iterator[Import]]] = {
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
IMPORT_LANGUAGES = frozenset(_FINDERS)


# Resolve imports to files of the same repository. Only the paths of the files are used.


class RepoFiles:
    """Files of a repository in one split, identified by their index in `paths`."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._index_by_path = {path: index for index, path in enumerate(paths)}
        self._by_name: dict[str, list[int]] = {}
        self._by_folder: dict[tuple[str, str], list[int]] = {}
        """Indices of Go and Java files, keyed by folder and ending, because imports may name a complete folder."""
        self._package_roots: dict[str, list[str]] = {}
        """Folders that contain a Python package but are not packages themselves, keyed by the name of the package."""
        self._go_modules: dict[str, str] = {}
        self._go_roots: set[str] = set()
        for index, path in enumerate(paths):
            folder, name = _split(path)
            self._by_name.setdefault(name, []).append(index)
            for ending in (".go", ".java"):
                if name.endswith(ending) and not name.endswith("_test.go"):
                    self._by_folder.setdefault((folder, ending), []).append(index)
            if name == "__init__.py" and folder:
                root, package = _split(folder)
                if not self._is_package(root):
                    self._package_roots.setdefault(package, []).append(root)

    def add_go_module(self, index: int, imports: Iterable[Import]) -> None:
        """Register the module that a go.mod declares for its folder. Call this before Go imports are resolved."""
        folder, name = _split(self._paths[index])
        for declared in imports:
            if name == "go.mod":
                self._go_modules.setdefault(declared.module, folder)
                self._go_roots.add(folder)

    def imported_by(self, index: int, language: str, imports: Iterable[Import]) -> list[int]:
        """Return the indices of the files that these imports refer to, in ascending order, without the file itself.

        At most MAX_IMPORTS indices are returned.
        """
        resolve = self._resolver(language)
        found: dict[int, None] = {}
        for imported in imports:
            found |= dict.fromkeys(resolve(self._paths[index], imported))
            found.pop(index, None)
            if len(found) >= MAX_IMPORTS:
                break
        return sorted(islice(found, MAX_IMPORTS))

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

    def _first_existing(self, paths: Iterable[str]) -> list[int]:
        """Return a list with the index of the first path that exists, or an empty list."""
        return list(islice((self._index_by_path[path] for path in paths if path in self._index_by_path), 1))

    def _with_suffix(self, suffix: str) -> list[int]:
        """Return a list with the index of the only file whose path ends in `suffix`, or an empty list."""
        candidates = self._by_name.get(_split(suffix)[1], ())
        if len(candidates) > MAX_SAME_NAME:
            return []
        found = [index for index in candidates if f"/{self._paths[index]}".endswith(f"/{suffix}")]
        return found if len(found) == 1 else []

    def _is_package(self, folder: str) -> bool:
        return _joined(folder, "__init__.py") in self._index_by_path

    def _python(self, path: str, imported: Import) -> list[int]:
        folder = _split(path)[0]
        names = imported.module.lstrip(".").split(".") if imported.module.lstrip(".") else []
        if not all(names) or len(names) > MAX_FOLDERS:
            return []
        num_dots = len(imported.module) - len(imported.module.lstrip("."))
        if num_dots:
            above = list(islice(_folders_above(folder), min(num_dots, MAX_FOLDERS)))
            roots = above[-1:] if len(above) == num_dots else []
        else:
            roots = list(self._python_roots(folder, names[0])) if names else []
        for root in roots:
            found = self._python_module([root, *names], imported.name)
            if found:
                return found
        return []

    def _python_module(self, parts: Sequence[str], name: str) -> list[int]:
        """Return the file of the submodule `name`, or else the file of the package or module itself."""
        stem = "/".join(filter(None, parts))
        found = self._first_existing(f"{_joined(stem, name)}{ending}" for ending in PYTHON_ENDINGS) if name else []
        return found or self._first_existing(
            f"{stem}{ending}".lstrip("/") for ending in PYTHON_ENDINGS if stem or "/" in ending
        )

    def _python_roots(self, folder: str, package: str) -> Iterator[str]:
        """Yield the folders to search for a package that is imported by an absolute name.

        These are the folders above the file that are not packages, each followed by its `src`, and then up to
        MAX_SAME_NAME folders that contain the package.
        """
        for root in islice(_folders_above(folder), MAX_FOLDERS):
            if not self._is_package(root):
                yield root
                yield _joined(root, "src")
        yield from self._package_roots.get(package, ())[:MAX_SAME_NAME]

    def _go(self, path: str, imported: Import) -> list[int]:
        parts = imported.module.split("/")
        if len(parts) > MAX_FOLDERS:
            return []
        for size in range(len(parts), 0, -1):
            root = self._go_modules.get("/".join(parts[:size]))
            if root is not None:
                return self._by_folder.get(("/".join(filter(None, [root, *parts[size:]])), ".go"), [])
        folders = set(islice(_folders_above(_split(path)[0]), MAX_FOLDERS))
        if folders & self._go_roots or "." not in parts[0]:
            return []  # imported from a different module or the standard library
        suffixes = ("/".join(parts[size:]) for size in range(len(parts)))
        return next((self._by_folder[folder, ".go"] for folder in suffixes if (folder, ".go") in self._by_folder), [])

    def _rust(self, path: str, imported: Import) -> list[int]:
        names = imported.module.split("::")
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
        return self._first_existing(f"{stem}{ending}" for stem in stems for ending in (".rs", "/mod.rs"))

    def _crate_root(self, folder: str) -> str | None:
        above = list(islice(_folders_above(folder), MAX_FOLDERS))
        roots = (
            parent
            for parent in above
            if {_joined(parent, "lib.rs"), _joined(parent, "main.rs")} & self._index_by_path.keys()
        )
        return next(roots, next((parent for parent in above if _split(parent)[1] == "src"), None))

    def _script(self, path: str, imported: Import) -> list[int]:
        stem = _normalized(_joined(_split(path)[0], imported.module))
        if stem is None:
            return []
        endings = ((old, new) for old, sources in COMPILED_ENDINGS.items() if stem.endswith(old) for new in sources)
        compiled_from = (f"{stem.removesuffix(old)}{new}" for old, new in endings)
        with_ending = (f"{stem}{ending}" for ending in SCRIPT_ENDINGS)
        index_files = (_joined(stem, f"index{ending}") for ending in SCRIPT_ENDINGS)
        return self._first_existing([stem, *with_ending, *index_files, *compiled_from])

    def _java(self, path: str, imported: Import) -> list[int]:
        *names, last = imported.module.split(".")
        if len(names) >= MAX_FOLDERS or not all(names):
            return []
        names = names if last == "*" else [*names, last]
        above = list(islice(_folders_above(_split(path)[0]), MAX_FOLDERS))
        # The import may name a member of a class, or a member of a nested class.
        for size in range(len(names), max(0, len(names) - 3), -1):
            suffix = f"{'/'.join(names[:size])}.java"
            found = self._first_existing(_joined(root, suffix) for root in above) or self._with_suffix(suffix)
            if found:
                return found
        folders = (_joined(root, "/".join(names)) for root in above) if last == "*" else iter(())
        return next(
            (self._by_folder[folder, ".java"] for folder in folders if (folder, ".java") in self._by_folder), []
        )

    def _c(self, path: str, imported: Import) -> list[int]:
        relative, absolute = _normalized(_joined(_split(path)[0], imported.module)), _normalized(imported.module)
        if imported.module.startswith("/") or relative is None:
            return []
        return self._first_existing([relative]) or (self._with_suffix(absolute) if absolute else [])


def _split(path: str) -> tuple[str, str]:
    """Split `a/b/c.py` into `a/b` and `c.py`."""
    folder, _, name = path.rpartition("/")
    return folder, name


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _folders_above(folder: str) -> Iterator[str]:
    """Yield a folder and all folders above it: `a/b`, `a` and the empty string."""
    yield folder
    while folder:
        folder = _split(folder)[0]
        yield folder


def _normalized(path: str) -> str | None:
    """Normalize a path: `a/./b/../c` -> `a/c`. Return None for a path outside the repository."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and not parts:
            return None
        if part == "..":
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return "/".join(parts)
