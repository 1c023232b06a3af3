"""Records of the pipeline: one small record per state of a file.

A build may keep a hundred thousand records in memory. They hold only plain values, so the garbage collector does not
need to track them.

    SourceFile          a file that was found
    Document            the text of a file, after reading, decoding and cleaning
    TokenizedDocument   a document as stored in a part, next to its ids
    PreparedDocument    a document in memory, with the location of its ids and its license
    PlacedDocument      a document, or a variant of a document, with its split, cuts and draw
    Drop                a file that is not in the dataset, with the reason

A part is a file in the work folder that stores the ids of one batch of texts. Step 1 of a build reads, cleans and
tokenizes files. Step 2 finds duplicates, assigns splits, cuts shared spans, samples windows and makes variants.
"""

from enum import StrEnum
from typing import Any, Literal, NamedTuple, Self

import msgspec

FileKey = tuple[str, str]
"""Key of a file: (repo, path)."""
Range = tuple[int, int]
"""Half-open range of token indices: (start, end)."""


MAX_WINDOW_LENGTH = 1 << 20
NO_LIMIT = 1 << 40
"""Window length that no document exceeds."""
MAX_VOCAB_SIZE = 1 << 24


class Split(StrEnum):
    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


class DropStage(StrEnum):
    """Stages that a kept file passes. A dropped file does not reach the stage of its drop reason."""

    READ = "read as text"
    CLEAN = "clean"
    DISTINCT = "distinct"
    KEPT = "kept"


class DropReason(StrEnum):
    """Reason why a file is not in the dataset, with the stage that the file does not reach and a text for users."""

    stage: DropStage
    meaning: str

    def __new__(cls, name: str, stage: DropStage, meaning: str) -> Self:
        self = str.__new__(cls, name)
        self._value_ = name
        self.stage = stage
        self.meaning = meaning
        return self

    EXCLUDED = "excluded", DropStage.READ, "excluded by default: images, lock files, build outputs and similar files"
    TRANSLATION = (
        "translation",
        DropStage.READ,
        "excluded by default: translated messages in the formats of gettext, XLIFF, ARB and Qt",
    )
    EXCLUDED_BY_USER = "excluded_by_user", DropStage.READ, "matches an --exclude pattern"
    NOT_INCLUDED = "not_included", DropStage.READ, "matches no --include pattern"
    LANGUAGE_NOT_WANTED = "language_not_wanted", DropStage.READ, "in a language that --language does not name"
    SYMLINK = "symlink", DropStage.READ, "a symbolic link; a target inside the source is read separately"
    OUTSIDE_SOURCE = (
        "outside_source",
        DropStage.READ,
        "listed by the repository, but with a path that leads outside the source",
    )
    NOT_A_FILE = "not_a_file", DropStage.READ, "a FIFO, a socket, a device, or a submodule that is not checked out"
    TOO_LARGE = "too_large", DropStage.READ, "larger than --max-file-bytes"
    UNREADABLE = "unreadable", DropStage.READ, "the system refused to open or read the file"
    VANISHED = "vanished", DropStage.READ, "found in the source, but missing when the build tried to read the file"
    CHANGED_WHILE_READ = "changed_while_read", DropStage.READ, "changed during each of three attempts to read the file"
    EMPTY = "empty", DropStage.READ, "contains no bytes, or only a byte order mark"
    BINARY = "binary", DropStage.READ, "neither UTF-8, nor UTF-16 with a byte order mark, nor clearly Latin-1"
    BAD_ROW = "bad_row", DropStage.READ, "a table row without text"
    BAD_NOTEBOOK = "bad_notebook", DropStage.READ, "a notebook that cannot be divided into cells"
    VENDORED = "vendored", DropStage.CLEAN, "third-party code: in a folder named vendor, third_party or similar"
    LOCK_FILE = "lock_file", DropStage.CLEAN, "a lock file, which lists pinned dependencies"
    GENERATED = "generated", DropStage.CLEAN, "a source map, or a generated file, recognized by its first lines or name"
    MINIFIED = "minified", DropStage.CLEAN, "minified for a browser"
    ONE_LINE = "one_line", DropStage.CLEAN, "a single long line"
    ENCODED_DATA = (
        "encoded_data",
        DropStage.CLEAN,
        "contains a long run of base64, hex or escapes, or consists mostly of such data",
    )
    TOO_SHORT = "too_short", DropStage.CLEAN, "contains only whitespace, or hardly anything else"
    MEAN_LINE_TOO_LONG = "mean_line_too_long", DropStage.CLEAN, "lines are too long on average"
    LINE_TOO_LONG = "line_too_long", DropStage.CLEAN, "contains a line that is too long"
    TOO_LITTLE_ALPHABETIC = "too_little_alphabetic", DropStage.CLEAN, "contains too few letters"
    HOLDS_SECRET = (
        "holds_secret",
        DropStage.CLEAN,
        "contains a secret, and --secrets is drop or the secret cannot be redacted",
    )
    CONTROL_SPELLING = (
        "control_spelling",
        DropStage.CLEAN,
        "contains the text of a control token, and --control-spellings is drop or the text cannot be respelled",
    )
    LICENSE_NOT_ALLOWED = "license_not_allowed", DropStage.CLEAN, "license is unknown, or not in --license-allow"
    NO_TOKENS = "no_tokens", DropStage.CLEAN, "the tokenizer produces no tokens for the text"
    CONTROL_TOKEN = "control_token", DropStage.CLEAN, "the tokenizer would turn part of the text into a control token"
    EXACT_DUPLICATE = (
        "exact_duplicate",
        DropStage.DISTINCT,
        "has the same text as a kept file that is earlier in path order",
    )
    NEAR_DUPLICATE = (
        "near_duplicate",
        DropStage.DISTINCT,
        "has a 5-gram Jaccard similarity of 0.7 or more to a kept file of the same cluster",
    )
    CONTAMINATED = (
        "contaminated",
        DropStage.KEPT,
        "nearly all of the text is also in a different split or in a benchmark",
    )
    FAILED = (
        "failed",
        DropStage.READ,
        "with --skip-failed: in each of three attempts, the file could not be read, or the worker died or hung",
    )


class SourceFile(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A file that was found in a source."""

    repo: str
    """Name of the source folder, or the repository that a table row names."""
    path: str
    """Path relative to the source, separated by `/` and escaped as core/names.py describes."""
    location: str
    """Path to open. No output contains this path."""
    size: int
    offset: int | None = None
    """Byte offset of the text in the file at `location`. None if the text is the complete file."""
    license: str | None = None
    """SPDX expression, or NOASSERTION, that a table row names. None if no table names a license."""
    may_be_translation: bool = False
    """True if the name fits both a Qt translation and TypeScript. The content of the file must decide."""
    stamp: int | None = None
    """Hash of the file's inode, size and times. Equal stamps mean equal content. None if inode, size or times are
    unknown, or if the file was modified so recently that a later edit could leave its times the same."""


class Redaction(msgspec.Struct, frozen=True, gc=False):
    """A redacted secret, without its value."""

    kind: str
    line: int
    start: int
    """Byte offset of the secret in the text before redaction."""
    end: int
    """Byte offset after the secret, in the text before redaction."""
    hash: str
    """Four hex digits of a salted hash of the secret: enough to distinguish two values, too few to confirm a guess."""


class Respelling(msgspec.Struct, frozen=True, gc=False):
    """A space inserted into the text of a control token."""

    spelling: str
    """Text of the control token, like `<|endoftext|>`."""
    line: int
    at: int
    """Byte offset at which the space is inserted, in the redacted text before respelling."""


class Cut(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A range of tokens that is cut out of a file, because the range also occurs in `shared_with`."""

    start: int
    end: int
    shared_with: str
    first_line: int = 0
    """Line on which the first token begins, counted from 1, or 0 if unknown."""
    last_line: int = 0
    """Line on which the last token begins, counted from 1, or 0 if unknown."""


class Draw(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Number of rows that each window of a file gets."""

    passes: int
    """Number of rows that every window gets."""
    extra: int
    """Number of windows that get one more row."""
    seed: int
    """Seed that decides which windows get one more row."""


class VariantKind(StrEnum):
    """Kind of variant. The rows of a file precede the rows of its variants, which are in the order of this enum."""

    RENAME = "rename"
    COMMENTS = "comments"
    FORMAT = "format"
    REWRITE = "rewrite"
    NOISE = "noise"


class VariantTraits(NamedTuple):
    """Properties of a kind of variant. The functions that make variants are in variants/kinds.py."""

    description: str
    """Description of the change to the file."""
    makes: Literal["text", "windows"]
    """`text` if the variant is a changed text, which is cut into windows like a file. `windows` if the variant consists
    of independent windows, each made from a part of the file."""
    keeps: tuple[Literal["tree", "meaning"], ...] = ()
    """Properties of the file that the variant preserves: the syntax tree, the meaning of the program."""
    needs_grammar: bool = False
    """True if making the variant needs a grammar for the file's language."""
    needs_mask: bool = False
    """True if making the variant needs a tokenizer with a mask token."""
    has_labels: bool = False
    """True if the ids are changed after tokenizing, as by noise. The unchanged ids are in the column `labels`."""
    needs_model: bool = False
    """True if a language model writes the variant, so its text may differ from build to build."""
    settings: tuple[str, ...] = ()
    """Settings that only this kind uses. A name with a trailing dot stands for a complete section."""


VARIANTS: dict[VariantKind, VariantTraits] = {
    VariantKind.RENAME: VariantTraits(
        "local variables renamed, scope by scope; public names, attributes and imports are unchanged",
        makes="text",
        keeps=("tree", "meaning"),
        needs_grammar=True,
    ),
    VariantKind.COMMENTS: VariantTraits(
        "comments removed, partly removed, or moved",
        makes="text",
        keeps=("meaning",),
        needs_grammar=True,
    ),
    VariantKind.FORMAT: VariantTraits(
        "different indentation, quotes or blank lines",
        makes="text",
        keeps=("meaning",),
        needs_grammar=True,
    ),
    VariantKind.REWRITE: VariantTraits(
        "the file rewritten by a language model that you run",
        makes="text",
        needs_grammar=True,
        needs_model=True,
        settings=("rewrite.",),
    ),
    VariantKind.NOISE: VariantTraits(
        "spans masked and tokens deleted in `input_ids`; the column `labels` has the ids before these changes",
        makes="windows",
        needs_mask=True,
        has_labels=True,
        settings=("variants.noise_mask", "variants.noise_span", "variants.noise_delete"),
    ),
}

INDEPENDENT_WINDOW_KINDS = frozenset(kind for kind, one in VARIANTS.items() if one.makes == "windows")
"""Kinds of variants with independent windows: consecutive windows are not consecutive in a text."""
LABELED_KINDS = frozenset(kind for kind, one in VARIANTS.items() if one.has_labels)
"""Kinds of variants whose ids are changed after tokenizing. Their rows have the unchanged ids in `labels`."""


class Variant(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Kind of a variant, and the relation of its windows to the file."""

    kind: VariantKind
    seed: int
    """Seed of random choices. The same seed and file give the same variant, unless a language model writes it."""
    edges: tuple[int, ...] = ()
    """For independent windows: the index of each window's first id, followed by the total number of ids."""
    file_ranges: tuple[Range, ...] = ()
    """For independent windows: the range of the file's tokens that each window was made from."""
    num_file_tokens: int = 0
    """Number of tokens in the file itself."""
    own_windows: tuple[int, ...] = ()
    """For a changed text: indices of the windows that are equal to windows of the file and therefore get no rows."""

    @property
    def is_text(self) -> bool:
        """True if the variant is a text that is cut into windows like a file. False if its windows are independent."""
        return self.kind not in INDEPENDENT_WINDOW_KINDS

    @property
    def has_labels(self) -> bool:
        return self.kind in LABELED_KINDS


class Reason(StrEnum):
    """A reason with a description for users."""

    meaning: str

    def __new__(cls, name: str, meaning: str) -> Self:
        self = str.__new__(cls, name)
        self._value_ = name
        self.meaning = meaning
        return self


class WhyNoVariant(Reason):
    """Reason why a file that was chosen for a variant has none."""

    FILE_WAS_CUT = "file_was_cut", "spans were cut out of the file and must not return in a variant"
    LANGUAGE_NOT_KNOWN = "language_not_known", "there is no grammar for the language of the file"
    TEXT_NOT_GIVEN_BACK = "text_not_given_back", "decoding the ids of the file does not give its exact text"
    NOTHING_TO_VARY = "nothing_to_vary", "the file has no names, comments or layout to change"
    SYNTAX_ERRORS = "syntax_errors", "the grammar cannot parse the file, or finds syntax errors"
    MORE_ERRORS = "more_errors", "the variant has more syntax errors than the file"
    HOLDS_SECRET = "holds_secret", "the variant contains a possible secret"
    CONTROL_TOKEN = "control_token", "the tokenizer produces no tokens for the variant, or produces a control token"
    NO_ANSWER = "no_answer", "the endpoint did not answer; the next build asks again"
    ANSWER_REFUSED = (
        "answer_refused",
        "the answer cannot be used, for example because it is cut off or has more syntax errors than the file",
    )
    TEXT_TOO_LONG = (
        "text_too_long",
        "the file was not sent, because the file and an answer of the same length do not fit into the model's context",
    )
    DUPLICATE = "duplicate", "the text of the variant is already in the corpus"
    SHARES_SPAN = (
        "shares_span",
        "the variant shares 50 tokens with a held-out file or a benchmark, and the file itself does not",
    )
    FAILED = "failed", "with --skip-failed: the worker died or hung in each of three attempts"


class NoVariant(msgspec.Struct, frozen=True, gc=False, array_like=True):
    repo: str
    path: str
    kind: VariantKind
    why: WhyNoVariant


class FimForm(StrEnum):
    """Order of the parts of a window that is rewritten for fill-in-the-middle."""

    PSM = "psm"
    """Prefix, suffix, middle."""
    SPM = "spm"
    """Suffix, prefix, middle."""


class MiddleKind(StrEnum):
    """Kind of text that is the middle of a fill-in-the-middle window."""

    STATEMENT = "statement"
    """A statement, declaration or definition, such as a function, a class or an import."""
    BLOCK = "block"
    BODY = "body"
    """The block of a function, a method, a class or similar."""
    ARGUMENTS = "arguments"
    """The arguments with their brackets."""
    LINES = "lines"
    CHARACTERS = "characters"


class FimWindow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A window of a document that was rewritten for fill-in-the-middle. A window whose `form` is None is unchanged."""

    start: int
    """Index in the file of the window's first token."""
    end: int
    """Index in the file of the token after the window's last token."""
    num_ids: int
    """Number of ids in the window, the special tokens of fill-in-the-middle included."""
    form: FimForm | None = None
    middle: MiddleKind | None = None
    num_middle_tokens: int = 0


class Fim(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Windows of a document that was rewritten for fill-in-the-middle. The document's part stores their ids."""

    seed: int
    """Seed of random choices. The same seed and text give the same windows."""
    windows: tuple[FimWindow, ...]
    adds_closing_ids: bool
    """True if the special ids that end a document must be added after each rewritten window. False if the ids of the
    windows include the end token."""
    num_file_tokens: int
    """Number of tokens in the original file."""
    file_part: str
    """Name of the part that stores the ids of the original file."""
    file_part_offset: int
    file_part_bytes: int

    @property
    def num_rewritten(self) -> int:
        return sum(one.form is not None for one in self.windows)


class WhyNotRewritten(Reason):
    """Reason why a file that was chosen for fill-in-the-middle is not rewritten."""

    FILE_WAS_CUT = "file_was_cut", "spans were cut out of the file"
    TEXT_NOT_GIVEN_BACK = "text_not_given_back", "decoding the ids of the file does not give its exact text"
    SPELLS_CONTROL_TOKEN = (
        "spells_control_token",
        "the file spells out a control token, which could be taken for a fill-in-the-middle token in the text of rows",
    )
    NO_MIDDLE = "no_middle", "the file is too short, or one of its windows is too short or only whitespace"
    FAILED = "failed", "with --skip-failed: the worker died or hung in each of three attempts"


class NotRewritten(msgspec.Struct, frozen=True, gc=False, array_like=True):
    repo: str
    path: str
    why: WhyNotRewritten


class Drop(msgspec.Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """A file that is not in the dataset, with the reason."""

    repo: str
    path: str
    reason: DropReason
    detail: str
    size: int | None = None
    language: str | None = None
    sha256: str | None = None
    text_sha256: str | None = None
    group: str | None = None
    split: Split | None = None
    """Split that the file would be in. None if the file was dropped before splits were assigned. Later builds reuse
    this split."""
    moved_from: Split | None = None
    twin: str | None = None
    similarity: float | None = None
    num_tokens: int | None = None
    cuts: tuple[Cut, ...] = ()
    measures: bytes | None = None
    license: str | None = None
    license_from: str | None = None

    @classmethod
    def of(cls, file: "SourceFile | PreparedDocument", reason: DropReason, detail: str, **more: Any) -> "Drop":
        """Return a Drop with all facts that `file` has. `more` sets further fields."""
        names: tuple[str, ...] = ()
        if isinstance(file, PreparedDocument):
            names = ("language", "text_sha256", "num_tokens", "license", "license_from")
        if isinstance(file, PlacedDocument):
            names += ("cuts", "group", "split", "moved_from")
        more = {**{name: getattr(file, name) for name in names}, **more}
        return cls(repo=file.repo, path=file.path, reason=reason, detail=detail, size=file.size, **more)


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a file, after reading, decoding and cleaning."""

    file: SourceFile
    text: bytes
    """UTF-8 without a byte order mark. Line ends are those of the file."""
    encoding: str
    """`text.decode().encode(encoding)` gives the bytes of the file, without the byte order mark of a UTF-16 file."""
    language: str
    size: int
    """Number of bytes in the file."""
    sha256: str | None
    """Digest of the file's bytes, as `sha256sum` prints it. None if secrets were redacted, because the digest would
    confirm a guess of the redacted value."""
    is_unmodified: bool = False
    """True if the text is exactly the bytes of the file: nothing was converted, redacted or respelled."""
    measures: bytes | None = None
    """Measurements of the cleaning rules, as JSON."""
    redactions: tuple[Redaction, ...] = ()
    respellings: tuple[Respelling, ...] = ()

    @property
    def repo(self) -> str:
        return self.file.repo

    @property
    def path(self) -> str:
        return self.file.path


class StoredText(msgspec.Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """Location of a text's ids in a part. The text is a document or belongs to a benchmark."""

    repo: str
    path: str
    num_tokens: int
    part: str
    part_offset: int
    part_row: int
    """Index of the text in its part, from 0."""

    @property
    def name(self) -> str:
        return f"{self.repo}/{self.path}"


class TokenizedText(msgspec.Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """Facts about a document that step 1 of a build finds and all later steps keep."""

    repo: str
    path: str
    language: str
    size: int
    text_sha256: str
    """Digest of the tokenized text. Files that differ only in encoding, name or notebook outputs have the same
    digest."""
    num_tokens: int
    num_newlines: int
    part_bytes: int
    num_windows: int
    num_emitted_tokens: int
    """Number of tokens in all windows of the document, special tokens and padding included."""
    num_window_tokens: int
    """Number of the file's tokens in all windows of the document. A token in two windows is counted twice."""
    num_tail_tokens_dropped: int
    num_row_bytes: int
    """Exact number of bytes of the document's rows in JSONL, before compression. These sizes give the offset of each
    row before anything is written. In a TokenizedDocument, columns that step 2 fills are not included."""

    @property
    def key(self) -> FileKey:
        return self.repo, self.path

    @property
    def name(self) -> str:
        return f"{self.repo}/{self.path}"


class TokenizedDocument(TokenizedText, frozen=True, kw_only=True, gc=False, array_like=True):
    """A document as stored in a part. The sizes of the earlier documents in the part give the offset of its ids."""

    header_license: str | None
    """License in the SPDX tag of the file's header."""
    named_license: str | None
    """License family that is named in words in the first lines of the file."""
    declared_license: str | None
    """License that a table row names."""


class PreparedDocument(TokenizedText, frozen=True, kw_only=True, gc=False, array_like=True):
    """Facts about a document that stay in memory. They take a few hundred bytes. All other facts are on disk."""

    part: str
    part_offset: int
    part_row: int
    license: str
    license_from: str | None


class PlacedDocument(PreparedDocument, frozen=True, kw_only=True, gc=False, array_like=True):
    """A document with its split. Step 2 may cut spans out of it, sample its windows, or make variants of it."""

    group: str
    """Name of the group of files that must be in the same split."""
    split: Split
    moved_from: Split | None
    """Split in an earlier build, if that split was different. None otherwise."""
    cuts: tuple[Cut, ...] = ()
    drops_touched_windows: bool = False
    """True if windows that contain a token of a cut are dropped. False if only the tokens of cuts are removed."""
    num_cut_tokens: int = 0
    """Number of tokens that are in no window because of `cuts`: the cut tokens, and the tokens of short remaining parts
    and of dropped windows."""
    draw: Draw | None = None
    """None if each window has one row."""
    num_undrawn_tokens: int = 0
    """Number of tokens that are in no row because their windows were not drawn."""
    weight: float = 1.0
    """Weight of the document's rows, with --weights-only."""
    variant: Variant | None = None
    """None if the document is the file itself."""
    fim: Fim | None = None
    """None if the document is not rewritten for fill-in-the-middle."""

    @property
    def num_file_tokens(self) -> int:
        """Number of tokens in the file's text. Differs from `num_tokens` after rewriting for fill-in-the-middle."""
        return self.num_tokens if self.fim is None else self.fim.num_file_tokens

    @property
    def num_uncut_tokens(self) -> int:
        """Number of the file's tokens that are in at least one row: not cut, and drawn."""
        return self.num_file_tokens - self.num_cut_tokens - self.num_undrawn_tokens

    def before_rewriting(self) -> "PlacedDocument":
        """Return the document before fill-in-the-middle, except for row counts and sizes, which are not restored."""
        if self.fim is None:
            return self
        return msgspec.structs.replace(
            self,
            fim=None,
            num_tokens=self.fim.num_file_tokens,
            part=self.fim.file_part,
            part_offset=self.fim.file_part_offset,
            part_bytes=self.fim.file_part_bytes,
        )


class DocumentFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """Facts about a document that are needed only for files.jsonl, and are therefore kept on disk."""

    sha256: str | None
    """Same as Document.sha256."""
    encoding: str
    num_lines: int
    measures: bytes | None
    redactions: tuple[Redaction, ...]
    respellings: tuple[Respelling, ...]


AnyStoredText = StoredText | PreparedDocument
