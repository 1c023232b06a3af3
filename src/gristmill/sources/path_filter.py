"""Which paths are taken: the table of what is never source, and the user's own patterns on top of it.

The user's patterns are those of a .gitignore, and the last one that matches decides: `--exclude '!dist/'` brings back
what the table leaves out, `--exclude 'tests/'` leaves out more. With `--include`, a file must also match one of those.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from gristmill.config.settings import ScanConfig
from gristmill.core.errors import ConfigError
from gristmill.core.records import DropReason
from gristmill.sources.gitignore import Pattern, Patterns, is_usable
from gristmill.sources.languages import QT_SUFFIX


class Exclude(NamedTuple):
    what: str
    folders: tuple[str, ...] = ()
    """By name; `*.suffix` for any name with that suffix."""
    names: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    unless_tracked: bool = False
    """Files that git tracks are source even under such a name: `tools/build/` exists."""
    reason: DropReason = DropReason.EXCLUDED


DEFAULT_EXCLUDES = (
    Exclude(
        "version control",
        folders=(".git", ".hg", ".svn", ".bzr", "CVS"),
    ),
    Exclude(
        "installed dependencies",
        folders=(
            "node_modules",
            "bower_components",
            "site-packages",
            "dist-packages",
            ".venv",
            "venv",
            ".eggs",
            "*.egg-info",
        ),
    ),
    Exclude(
        "caches",
        folders=(
            *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox", ".cache"),
            *(
                ".gradle",
                ".next",
                ".nuxt",
                ".svelte-kit",
                ".parcel-cache",
                ".turbo",
                ".terraform",
                ".ipynb_checkpoints",
            ),
        ),
    ),
    Exclude(
        "build outputs",
        folders=("build", "dist", "target", "out", "_build", "DerivedData", "cmake-build-debug", "cmake-build-release"),
        unless_tracked=True,
    ),
    Exclude(
        "lock files",
        names=(
            *("package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb"),
            *("poetry.lock", "Pipfile.lock", "pdm.lock", "uv.lock", "pixi.lock", "conda-lock.yml"),
            *("Cargo.lock", "go.sum", "composer.lock", "Gemfile.lock", "mix.lock", "pubspec.lock", "Podfile.lock"),
            *("packages.lock.json", "gradle.lockfile", "flake.lock", "deno.lock", "Package.resolved"),
        ),
    ),
    Exclude(
        "images",
        suffixes=(
            *("png", "jpg", "jpeg", "gif", "bmp", "tif", "tiff", "webp", "avif", "heic", "ico", "icns", "svg", "svgz"),
            *("psd", "ai", "eps", "xcf", "sketch", "fig"),
        ),
    ),
    Exclude(
        "sound and film",
        suffixes=("mp3", "wav", "flac", "ogg", "m4a", "aac", "mp4", "mkv", "mov", "avi", "webm", "m4v"),
    ),
    Exclude("fonts", suffixes=("ttf", "otf", "woff", "woff2", "eot")),
    Exclude("office documents", suffixes=("pdf", "doc", "docx", "xls", "xlsx", "ppt", "pptx", "odt", "ods", "odp")),
    Exclude(
        "archives",
        suffixes=(
            *("zip", "tar", "gz", "tgz", "bz2", "xz", "zst", "7z", "rar", "lz4", "whl", "egg", "jar", "war", "ear"),
            *("deb", "rpm", "apk", "dmg", "iso", "img", "nupkg", "gem", "crate"),
        ),
    ),
    Exclude(
        "compiled code",
        suffixes=(
            *("pyc", "pyo", "pyd", "o", "obj", "a", "lib", "so", "dylib", "dll", "exe", "class", "wasm", "beam"),
            *("rlib", "rmeta", "pdb", "elc", "node"),
        ),
    ),
    Exclude(
        "model weights and tensors",
        suffixes=(
            *("safetensors", "pt", "pth", "ckpt", "onnx", "gguf", "ggml", "h5", "hdf5", "tflite", "pb", "mlmodel"),
            *("npy", "npz", "pkl", "pickle", "joblib"),
        ),
    ),
    Exclude(
        "databases and tables",
        suffixes=("sqlite", "sqlite3", "db", "mdb", "parquet", "arrow", "feather", "avro", "orc"),
    ),
    # In one large Python project catalogues were 56 % of all tokens.
    Exclude("translations", suffixes=("po", "pot", "xlf", "xliff", "arb"), reason=DropReason.TRANSLATION),
)


class Verdict(NamedTuple):
    reason: DropReason
    detail: str


class PathFilter:
    """Judges paths, in the escaped form that the dataset shows, relative to the source."""

    def __init__(self, config: ScanConfig) -> None:
        self._excludes = _patterns("--exclude", config.exclude)
        self._includes = _patterns("--include", config.include)
        self._use_table = config.default_excludes
        self._ways: dict[tuple[str, bool], Verdict | None] = {}
        """By a file's folder, and whether git tracks the file: the verdict on the folders on its way."""

    def judge_folder(self, path: str) -> Verdict | None:
        """Why nothing below this folder is taken, or None. Called before going into it."""
        return self._judge_parent(path, is_tracked=False)

    def judge_file(self, path: str, *, is_tracked: bool, folders_judged: bool) -> Verdict | None:
        """Why this file is not taken, or None. `folders_judged`: the walk has asked about its folders already."""
        if not folders_judged and "/" in path:
            way = path.rpartition("/")[0], is_tracked
            if way not in self._ways:
                self._ways[way] = self._judge_way(*way)
            verdict = self._ways[way]
            if verdict is not None:
                return verdict
        by_user = self._user_pattern(path)
        if by_user is not None and not by_user.is_negated:
            return _by_user(by_user)
        by_table = _table_file(path.rpartition("/")[2]) if by_user is None and self._use_table else None
        if by_table is None and self._includes is not None and not self._includes.take(path.encode()):
            return Verdict(DropReason.NOT_INCLUDED, "matches no --include pattern")
        return by_table

    def may_be_translation(self, path: str) -> bool:
        """True for a name that Qt's translations share with TypeScript, unless a pattern takes the file anyway."""
        return self._use_table and path.lower().endswith(QT_SUFFIX) and self._user_pattern(path) is None

    def _judge_way(self, folder: str, is_tracked: bool) -> Verdict | None:
        """By the outermost folder that is not taken."""
        ends = (end for end, char in enumerate(folder + "/") if char == "/")
        verdicts = (self._judge_parent(folder[:end], is_tracked=is_tracked) for end in ends)
        return next((verdict for verdict in verdicts if verdict is not None), None)

    def _judge_parent(self, folder: str, *, is_tracked: bool) -> Verdict | None:
        by_user = self._user_pattern(folder + "/")
        if by_user is not None:
            return None if by_user.is_negated else _by_user(by_user)
        return self._table_folder(folder, is_tracked=is_tracked) if self._use_table else None

    def _user_pattern(self, path: str) -> Pattern | None:
        """The --exclude pattern that decides: a `!pattern` brings the path back, any other leaves it out."""
        return self._excludes.last_match(path.encode()) if self._excludes is not None else None

    def _table_folder(self, path: str, *, is_tracked: bool) -> Verdict | None:
        name = path.rpartition("/")[2]
        exclude = _by_folder().get(name) or _by_folder().get("*." + name.rpartition(".")[2])
        if exclude is None or (is_tracked and exclude.unless_tracked):
            return None
        return Verdict(exclude.reason, f"{exclude.what}: {name}/")


@cache
def _by_folder() -> dict[str, Exclude]:
    return {folder: exclude for exclude in DEFAULT_EXCLUDES for folder in exclude.folders}


@cache
def _by_name() -> dict[str, Exclude]:
    return {name: exclude for exclude in DEFAULT_EXCLUDES for name in exclude.names}


@cache
def _by_suffix() -> dict[str, Exclude]:
    return {suffix: exclude for exclude in DEFAULT_EXCLUDES for suffix in exclude.suffixes}


def _table_file(name: str) -> Verdict | None:
    exclude = _by_name().get(name)
    if exclude is not None:
        return Verdict(exclude.reason, f"{exclude.what}: {name}")
    stem, _, suffix = name.rpartition(".")
    exclude = _by_suffix().get(suffix.lower()) if stem else None
    return Verdict(exclude.reason, f"{exclude.what}: .{suffix.lower()}") if exclude is not None else None


def _by_user(pattern: Pattern) -> Verdict:
    return Verdict(DropReason.EXCLUDED_BY_USER, f"--exclude {pattern.text}")


def check_patterns(option: str, patterns: Sequence[str]) -> None:
    for pattern in patterns:
        if not is_usable(pattern):
            raise ConfigError(
                f"{option} {pattern!r} is no pattern of a .gitignore, or one that matches nothing. "
                "Try one like 'src/**/*.py'."
            )


def _patterns(option: str, patterns: Sequence[str]) -> Patterns | None:
    check_patterns(option, patterns)
    return Patterns(pattern.encode() for pattern in patterns) if patterns else None
