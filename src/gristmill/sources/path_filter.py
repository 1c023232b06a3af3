"""Decide which paths are source code, from a table of default excludes and the patterns of the user.

The patterns have the syntax of a .gitignore, and the last pattern that matches decides. `--exclude '!dist/'` restores a
folder that the table excludes, and `--exclude 'tests/'` excludes a further folder. With `--include`, a file must also
match an --include pattern.
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
    """A row of the table of default excludes."""

    label: str
    folders: tuple[str, ...] = ()
    """Names of folders. `*.suffix` matches any name with that suffix."""
    names: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    unless_tracked: bool = False
    """True if files that git tracks are kept even in such a folder, for example in `tools/build/`."""
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
        "audio and video",
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
    # In one large Python project, message catalogs were 56% of all tokens.
    Exclude("translations", suffixes=("po", "pot", "xlf", "xliff", "arb"), reason=DropReason.TRANSLATION),
)


class Exclusion(NamedTuple):
    """Reason and detail for dropping an excluded path."""

    reason: DropReason
    detail: str


class PathFilter:
    """Filter for paths that are relative to the source and escaped as in the dataset."""

    def __init__(self, config: ScanConfig) -> None:
        self._excludes = _patterns("--exclude", config.exclude)
        self._includes = _patterns("--include", config.include)
        self._use_defaults = config.default_excludes
        self._folder_exclusions: dict[tuple[str, bool], Exclusion | None] = {}
        """Cached results of `_check_folders`, keyed by its arguments."""

    def check_folder(self, path: str) -> Exclusion | None:
        """Return the exclusion of a folder and everything in it, or None. Call this before entering the folder."""
        return self._check_one_folder(path, is_tracked=False)

    def check_file(self, path: str, *, is_tracked: bool, folders_checked: bool) -> Exclusion | None:
        """Return the exclusion of a file, or None. Set `folders_checked` if its folders have been checked."""
        if not folders_checked and "/" in path:
            key = path.rpartition("/")[0], is_tracked
            if key not in self._folder_exclusions:
                self._folder_exclusions[key] = self._check_folders(*key)
            exclusion = self._folder_exclusions[key]
            if exclusion is not None:
                return exclusion
        by_user = self._user_pattern(path)
        if by_user is not None and not by_user.is_negated:
            return _user_exclusion(by_user)
        by_default = (
            _default_file_exclusion(path.rpartition("/")[2]) if by_user is None and self._use_defaults else None
        )
        if by_default is None and self._includes is not None and not self._includes.selects(path.encode()):
            return Exclusion(DropReason.NOT_INCLUDED, "matches no --include pattern")
        return by_default

    def may_be_translation(self, path: str) -> bool:
        """Return True for a `.ts` file that may be a Qt translation.

        Return False without the default excludes, or if an --exclude pattern matches the path.
        """
        return self._use_defaults and path.lower().endswith(QT_SUFFIX) and self._user_pattern(path) is None

    def _check_folders(self, folder: str, is_tracked: bool) -> Exclusion | None:
        """Return the exclusion of the outermost excluded folder of a path, or None."""
        ends = (end for end, char in enumerate(folder + "/") if char == "/")
        exclusions = (self._check_one_folder(folder[:end], is_tracked=is_tracked) for end in ends)
        return next((exclusion for exclusion in exclusions if exclusion is not None), None)

    def _check_one_folder(self, folder: str, *, is_tracked: bool) -> Exclusion | None:
        by_user = self._user_pattern(folder + "/")
        if by_user is not None:
            return None if by_user.is_negated else _user_exclusion(by_user)
        return self._default_folder_exclusion(folder, is_tracked=is_tracked) if self._use_defaults else None

    def _user_pattern(self, path: str) -> Pattern | None:
        """Return the last --exclude pattern that matches, or None. A negated pattern restores the path."""
        return self._excludes.last_match(path.encode()) if self._excludes is not None else None

    def _default_folder_exclusion(self, path: str, *, is_tracked: bool) -> Exclusion | None:
        name = path.rpartition("/")[2]
        exclude = _excludes_by_folder().get(name) or _excludes_by_folder().get("*." + name.rpartition(".")[2])
        if exclude is None or (is_tracked and exclude.unless_tracked):
            return None
        return Exclusion(exclude.reason, f"{exclude.label}: {name}/")


@cache
def _excludes_by_folder() -> dict[str, Exclude]:
    return {folder: exclude for exclude in DEFAULT_EXCLUDES for folder in exclude.folders}


@cache
def _excludes_by_name() -> dict[str, Exclude]:
    return {name: exclude for exclude in DEFAULT_EXCLUDES for name in exclude.names}


@cache
def _excludes_by_suffix() -> dict[str, Exclude]:
    return {suffix: exclude for exclude in DEFAULT_EXCLUDES for suffix in exclude.suffixes}


def _default_file_exclusion(name: str) -> Exclusion | None:
    exclude = _excludes_by_name().get(name)
    if exclude is not None:
        return Exclusion(exclude.reason, f"{exclude.label}: {name}")
    stem, _, suffix = name.rpartition(".")
    exclude = _excludes_by_suffix().get(suffix.lower()) if stem else None
    return Exclusion(exclude.reason, f"{exclude.label}: .{suffix.lower()}") if exclude is not None else None


def _user_exclusion(pattern: Pattern) -> Exclusion:
    return Exclusion(DropReason.EXCLUDED_BY_USER, f"--exclude {pattern.text}")


def check_patterns(option: str, patterns: Sequence[str]) -> None:
    """Raise ConfigError for a pattern that cannot match any path. `option` is the name of the option in the message."""
    for pattern in patterns:
        if not is_usable(pattern):
            raise ConfigError(
                f"{option} {pattern!r} is not a valid .gitignore pattern, or cannot match any path. "
                "Use a pattern such as 'src/**/*.py'."
            )


def _patterns(option: str, patterns: Sequence[str]) -> Patterns | None:
    check_patterns(option, patterns)
    return Patterns(pattern.encode() for pattern in patterns) if patterns else None
