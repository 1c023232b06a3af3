"""What flows through the mill: one small record per state of a file.

There may be a hundred thousand of each, so they hold plain values only and stay out of the garbage collector's sight.

SourceFile (found) -> Document (text) -> PreparedDocument (ids on disk) -> windows; or, at any point, Drop (a reason).
"""

from enum import StrEnum

import msgspec


class Split(StrEnum):
    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


class DropReason(StrEnum):
    """Why a file is not in the dataset: each states the defect."""

    EXCLUDED = "excluded"
    EXCLUDED_BY_USER = "excluded_by_user"
    NOT_INCLUDED = "not_included"
    LANGUAGE_NOT_WANTED = "language_not_wanted"
    SYMLINK = "symlink"
    OUTSIDE_SOURCE = "outside_source"
    NOT_A_FILE = "not_a_file"
    TOO_LARGE = "too_large"
    UNREADABLE = "unreadable"
    VANISHED = "vanished"
    CHANGED_WHILE_READ = "changed_while_read"
    EMPTY = "empty"
    BINARY = "binary"
    NO_TOKENS = "no_tokens"
    CONTROL_TOKEN = "control_token"
    EXACT_DUPLICATE = "exact_duplicate"


DROP_REASONS: dict[DropReason, str] = {
    DropReason.EXCLUDED: "on the table of what is never source",
    DropReason.EXCLUDED_BY_USER: "matches an --exclude pattern",
    DropReason.NOT_INCLUDED: "matches no --include pattern",
    DropReason.LANGUAGE_NOT_WANTED: "another language than --language asks for",
    DropReason.SYMLINK: "a symbolic link: its target counts where it lies, if that is in the source",
    DropReason.OUTSIDE_SOURCE: "the repository lists it, but its path leads out of the source",
    DropReason.NOT_A_FILE: "a FIFO, socket, device or a submodule that is not checked out",
    DropReason.TOO_LARGE: "larger than --max-file-bytes",
    DropReason.UNREADABLE: "the system refused to open or read it",
    DropReason.VANISHED: "listed, but not there when the build came to it",
    DropReason.CHANGED_WHILE_READ: "changed during each of three attempts to read it",
    DropReason.EMPTY: "no bytes, or nothing but a byte order mark",
    DropReason.BINARY: "neither UTF-8, UTF-16 with a mark, nor clearly Latin-1 text",
    DropReason.NO_TOKENS: "the tokenizer makes nothing of it",
    DropReason.CONTROL_TOKEN: "the tokenizer would turn its text into a control token",
    DropReason.EXACT_DUPLICATE: "the same text as a file earlier in path order, which stays",
}


class SourceFile(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    repo: str
    """The source folder's name."""
    path: str
    """Relative to the source, with `/`, in the one documented escape (see naming)."""
    location: str
    """Where to open it. Never leaves this machine: no output carries it."""
    size: int


class Drop(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    repo: str
    path: str
    reason: DropReason
    detail: str
    size: int | None = None
    language: str | None = None
    sha256: str | None = None

    @classmethod
    def of(cls, file: "SourceFile | PreparedDocument", reason: DropReason, detail: str) -> "Drop":
        drop = cls(repo=file.repo, path=file.path, reason=reason, detail=detail, size=file.size)
        if isinstance(file, PreparedDocument):
            return msgspec.structs.replace(drop, language=file.language, sha256=file.sha256)
        return drop


class Document(msgspec.Struct, frozen=True, kw_only=True):
    file: SourceFile
    text: bytes
    """UTF-8, without a byte order mark; line ends as they are in the file."""
    encoding: str
    """`text.decode().encode(encoding)` gives the file's bytes back (a UTF-16 file's without its mark)."""
    language: str
    size: int
    """Of the file as it was read, in bytes."""
    sha256: str
    """Of the file's bytes, as `sha256sum` prints it."""


class PreparedDocument(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What later steps need to know about a document whose ids lie in a shard of the work folder."""

    repo: str
    path: str
    language: str
    size: int
    sha256: str
    text_sha256: str
    encoding: str
    num_lines: int
    num_tokens: int
    num_windows: int
    num_emitted_tokens: int
    """Tokens in all its windows, special tokens and padding included."""
    num_tail_tokens_dropped: int
    num_row_bytes: int
    """Exactly what its rows will take in the output, so that every piece knows its place before it is written."""
    shard: str
    shard_offset: int
    shard_bytes: int
    num_newlines: int

    @property
    def key(self) -> tuple[str, str]:
        return self.repo, self.path
