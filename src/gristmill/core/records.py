"""Records of the pipeline: one small record per state of a file.

There may be a hundred thousand of each, so they hold plain values only and are not tracked by the garbage collector.

    SourceFile          a file that was found
    Document            its text, after reading, decoding and cleaning
    TokenizedDocument   its ids and facts, as stored in a part of the work folder
    PreparedDocument    the location of its ids, and its license
    PlacedDocument      its split, cuts, draw and variants
    Drop                a file that is not in the dataset, with the reason
"""

from enum import StrEnum
from typing import Any, Literal, NamedTuple, Self

import msgspec

FileKey = tuple[str, str]
"""(repo, path)"""
Range = tuple[int, int]
"""Half-open range of token indices: (start, end)."""


MAX_WINDOW_LENGTH = 1 << 20
NO_LIMIT = 1 << 40
"""Window length that is enough for any document."""
MAX_VOCAB_SIZE = 1 << 24


class Split(StrEnum):
    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


class DropStage(StrEnum):
    """Stages that a file passes. A dropped file does not reach the stage of its reason."""

    READ = "read as text"
    CLEAN = "clean"
    DISTINCT = "distinct"
    KEPT = "kept"


class DropReason(StrEnum):
    """Reason why a file is not in the dataset: its name, the stage that the file does not reach, and its meaning."""

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
    LANGUAGE_NOT_WANTED = "language_not_wanted", DropStage.READ, "its language is not one of --language"
    SYMLINK = "symlink", DropStage.READ, "a symbolic link; its target is read at its own path, if that is in the source"
    OUTSIDE_SOURCE = "outside_source", DropStage.READ, "listed by the repository, but its path leads out of the source"
    NOT_A_FILE = "not_a_file", DropStage.READ, "a FIFO, a socket, a device, or a submodule that is not checked out"
    TOO_LARGE = "too_large", DropStage.READ, "larger than --max-file-bytes"
    UNREADABLE = "unreadable", DropStage.READ, "the system refused to open or read it"
    VANISHED = "vanished", DropStage.READ, "listed, but missing when the build tried to read it"
    CHANGED_WHILE_READ = "changed_while_read", DropStage.READ, "changed during each of three attempts to read it"
    EMPTY = "empty", DropStage.READ, "no bytes, or only a byte order mark"
    BINARY = "binary", DropStage.READ, "neither UTF-8, nor UTF-16 with a byte order mark, nor clearly Latin-1"
    BAD_ROW = "bad_row", DropStage.READ, "a table's row without text"
    BAD_NOTEBOOK = "bad_notebook", DropStage.READ, "a notebook that cannot be divided into cells"
    VENDORED = "vendored", DropStage.CLEAN, "third-party code: in a folder named vendor, third_party or similar"
    LOCK_FILE = "lock_file", DropStage.CLEAN, "pinned dependencies"
    GENERATED = "generated", DropStage.CLEAN, "written by a program, by its first lines or name, or a source map"
    MINIFIED = "minified", DropStage.CLEAN, "minified for a browser"
    ONE_LINE = "one_line", DropStage.CLEAN, "a single long line"
    ENCODED_DATA = "encoded_data", DropStage.CLEAN, "a long run of base64, hex or escapes, or mostly consisting of them"
    TOO_SHORT = "too_short", DropStage.CLEAN, "only whitespace, or hardly more"
    MEAN_LINE_TOO_LONG = "mean_line_too_long", DropStage.CLEAN, "its lines are too long on average"
    LINE_TOO_LONG = "line_too_long", DropStage.CLEAN, "its longest line is too long"
    TOO_LITTLE_ALPHABETIC = "too_little_alphabetic", DropStage.CLEAN, "too few letters"
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
    LICENSE_NOT_ALLOWED = "license_not_allowed", DropStage.CLEAN, "its license is unknown or not in --license-allow"
    NO_TOKENS = "no_tokens", DropStage.CLEAN, "the tokenizer gives no tokens for it"
    CONTROL_TOKEN = "control_token", DropStage.CLEAN, "the tokenizer would turn its text into a control token"
    EXACT_DUPLICATE = (
        "exact_duplicate",
        DropStage.DISTINCT,
        "the same text as an earlier file in path order, which is kept",
    )
    NEAR_DUPLICATE = (
        "near_duplicate",
        DropStage.DISTINCT,
        "shares 0.7 or more of its 5-grams with the first file of its cluster, which is kept",
    )
    CONTAMINATED = "contaminated", DropStage.KEPT, "nearly all of it is also in another split or in a benchmark"
    FAILED = (
        "failed",
        DropStage.READ,
        "reading it failed or its worker died in each of three attempts; with --skip-failed",
    )


class SourceFile(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A file that was found in a source."""

    repo: str
    """Name of the source folder, or the repository that a table's row gives."""
    path: str
    """Path relative to the source, separated by `/` and escaped as core/names.py describes."""
    location: str
    """Path to open. It is not written to any output."""
    size: int
    offset: int | None = None
    """Offset inside the file at `location`. None for the complete file."""
    license: str | None = None
    """SPDX expression or NOASSERTION that a table gives. None if it gives none."""
    may_be_translation: bool = False
    """True if the name does not distinguish a Qt translation from TypeScript. Then its content decides."""
    stamp: int | None = None
    """Hash of its inode, size and times. Equal stamps mean equal content. None if these are unknown, or if the file is
    so new that another change might not change its times."""


class Redaction(msgspec.Struct, frozen=True, gc=False):
    """A redacted secret, without its value."""

    kind: str
    line: int
    start: int
    """Byte offset in the text before redaction."""
    end: int
    """Byte offset in the text before redaction."""
    hash: str
    """Four hex digits of a salted hash. They distinguish two values but do not confirm a guess."""


class Respelling(msgspec.Struct, frozen=True, gc=False):
    """A space inserted into the text of a control token."""

    spelling: str
    """Text of the control token, like `<|endoftext|>`."""
    line: int
    at: int
    """Byte offset of the space in the redacted text before respelling."""


class Cut(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A range of tokens that is cut out because it also occurs in `shared_with`."""

    start: int
    end: int
    shared_with: str
    first_line: int = 0
    """Line on which the first token begins. 0 until it is known."""
    last_line: int = 0
    """Line on which the last token begins. 0 until it is known."""


class Draw(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Number of rows for a file's windows."""

    passes: int
    """Number of rows for each window."""
    extra: int
    """Number of windows that get one more row."""
    seed: int
    """Decides which windows get one more row."""


class VariantKind(StrEnum):
    """Kind of variant. Rows of variants follow those of the file itself, in this order."""

    RENAME = "rename"
    COMMENTS = "comments"
    FORMAT = "format"
    REWRITE = "rewrite"
    NOISE = "noise"


class VariantTraits(NamedTuple):
    """Properties of a kind of variant. variants/kinds.py has the function that makes it."""

    description: str
    """Description of the change to the file."""
    makes: Literal["text", "windows"]
    """`text`: another text, cut into windows. `windows`: independent windows, made from parts of the file."""
    keeps: tuple[Literal["tree", "meaning"], ...] = ()
    """Properties that never change: the syntax tree, the meaning of the program."""
    needs_grammar: bool = False
    """True if it needs a grammar for the file's language."""
    needs_mask: bool = False
    """True if it needs a tokenizer with a mask token."""
    has_labels: bool = False
    """True if its ids are not those of a text. The column `labels` has the ids of the text."""
    needs_model: bool = False
    """True if a language model writes it, so that another answer gives another text."""
    settings: tuple[str, ...] = ()
    """Settings that only this kind uses. A name that ends with a dot is a complete section."""


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
        "other indentation, quotes or blank lines",
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
        "spans masked and tokens deleted in `input_ids`; the clean window in `labels` (in other rows, a copy of the "
        "ids; -100 for padding)",
        makes="windows",
        needs_mask=True,
        has_labels=True,
        settings=("variants.noise_mask", "variants.noise_span", "variants.noise_delete"),
    ),
}

INDEPENDENT_WINDOW_KINDS = frozenset(kind for kind, one in VARIANTS.items() if one.makes == "windows")
"""Kinds whose windows are independent: consecutive windows are not consecutive in a text."""
LABELED_KINDS = frozenset(kind for kind, one in VARIANTS.items() if one.has_labels)
"""Kinds whose ids are not those of a text."""


class Variant(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Kind and origin of a document that is a variant of a file."""

    kind: VariantKind
    seed: int
    """The same seed and file give the same variant."""
    edges: tuple[int, ...] = ()
    """For independent windows, the index of each window's first id, and the total number of ids."""
    file_ranges: tuple[Range, ...] = ()
    """For independent windows, the range of the file's tokens that each was made from."""
    num_file_tokens: int = 0
    """Number of tokens in the file itself."""
    own: tuple[int, ...] = ()
    """For another text, numbers of the windows that are equal to windows of the file. They get no rows."""

    @property
    def is_text(self) -> bool:
        """True if it is another text, cut into windows like a file. Otherwise its windows are independent."""
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
    LANGUAGE_NOT_KNOWN = "language_not_known", "there is no grammar for its language"
    TEXT_NOT_GIVEN_BACK = "text_not_given_back", "decoding its ids does not give back its exact text"
    NOTHING_TO_VARY = "nothing_to_vary", "it has no names, comments or layout to change"
    SYNTAX_ERRORS = "syntax_errors", "its grammar finds syntax errors or cannot parse it"
    MORE_ERRORS = "more_errors", "the variant has more syntax errors than the file"
    HOLDS_SECRET = "holds_secret", "the variant contains what looks like a secret"
    CONTROL_TOKEN = "control_token", "the tokenizer gives no tokens for the variant, or a control token"
    NO_ANSWER = "no_answer", "the endpoint did not answer; the next build asks again"
    ANSWER_REFUSED = "answer_refused", "the answer is not code, is the same code, or has more syntax errors"
    TEXT_TOO_LONG = (
        "text_too_long",
        "it was not sent, because it and an answer of its length do not fit into the model's context",
    )
    DUPLICATE = "duplicate", "the same text is already in the corpus"
    SHARES_SPAN = "shares_span", "it shares 50 tokens with a held-out file or a benchmark, unlike the file itself"
    FAILED = "failed", "its worker died or hung in each of three attempts; with --skip-failed"


class NoVariant(msgspec.Struct, frozen=True, gc=False, array_like=True):
    repo: str
    path: str
    kind: VariantKind
    why: WhyNoVariant


class FimForm(StrEnum):
    """Order of the parts of a window that is rewritten for fill in the middle."""

    PSM = "psm"
    """Prefix, suffix, middle."""
    SPM = "spm"
    """Suffix, prefix, middle."""


class MiddleKind(StrEnum):
    """Kind of text that is the middle in fill in the middle."""

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
    """A window of a rewritten document. Its middle is last, or it has no form and is unchanged."""

    start: int
    """Index of its first token in the file."""
    end: int
    """Index after its last token in the file."""
    num_ids: int
    """Number of ids, sentinels included."""
    form: FimForm | None = None
    middle: MiddleKind | None = None
    num_middle_tokens: int = 0


class Fim(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A document's rewriting for fill in the middle. Its part stores the ids of these windows one after another."""

    seed: int
    """The same seed and text give the same windows."""
    windows: tuple[FimWindow, ...]
    adds_closing_ids: bool
    """True if the closing ids follow each rewritten window. Otherwise the window's ids include the end token."""
    num_file_tokens: int
    file_part: str
    """Part with the ids of the original file."""
    file_part_offset: int
    file_part_bytes: int

    @property
    def num_rewritten(self) -> int:
        return sum(one.form is not None for one in self.windows)


class WhyNotRewritten(Reason):
    """Reason why a file that was chosen for fill in the middle is not rewritten."""

    FILE_WAS_CUT = "file_was_cut", "spans were cut out of it"
    TEXT_NOT_GIVEN_BACK = "text_not_given_back", "decoding its ids does not give back its exact text"
    SPELLS_CONTROL_TOKEN = (
        "spells_control_token",
        "rows have a text, and in this one a reader would mistake the text of a control token for a sentinel",
    )
    NO_MIDDLE = "no_middle", "it is too short, or one of its windows is only whitespace"
    FAILED = "failed", "its worker died or hung in each of three attempts; with --skip-failed"


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
    """Split that it would be in, if it was dropped after the splits were made. Later builds use the same split."""
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
        """Make a Drop with the known facts of the file. `more` sets further fields."""
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
    """`text.decode().encode(encoding)` gives the bytes of the file (of a UTF-16 file, without its byte order mark)."""
    language: str
    size: int
    """Number of bytes in the file."""
    sha256: str | None
    """Digest of the file's bytes, as `sha256sum` prints it. None if secrets were redacted, because the digest would
    confirm a guess of the redacted value."""
    is_unmodified: bool = False
    """True if the text is the file's bytes: not decoded, not cells of a notebook, nothing redacted or respelled."""
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
    """Location of a text's ids in a part of the work folder. The text is a document or belongs to a benchmark."""

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
    """Facts about a document that step 1 finds and all later steps keep."""

    repo: str
    path: str
    language: str
    size: int
    text_sha256: str
    """Digest of the tokenized text. It identifies a file independently of its encoding, name or notebook outputs."""
    num_tokens: int
    num_newlines: int
    part_bytes: int
    num_windows: int
    num_emitted_tokens: int
    """Tokens in all its windows, special tokens and padding included."""
    num_window_tokens: int
    """The file's own tokens in all its windows. A token in two windows counts twice."""
    num_tail_tokens_dropped: int
    num_row_bytes: int
    """Exact size of its rows in the output, so that the offset of every piece is known before it is written. In its
    part, the size excludes columns that step 2 fills."""

    @property
    def key(self) -> FileKey:
        return self.repo, self.path

    @property
    def name(self) -> str:
        return f"{self.repo}/{self.path}"


class TokenizedDocument(TokenizedText, frozen=True, kw_only=True, gc=False, array_like=True):
    """A document as stored in its part. The offset of its ids follows from the documents before it."""

    header_license: str | None
    """License of the SPDX tag in its header."""
    named_license: str | None
    """License family that its first lines name in words."""
    declared_license: str | None
    """License that a table gives."""


class PreparedDocument(TokenizedText, frozen=True, kw_only=True, gc=False, array_like=True):
    """Facts about a document that are kept in memory, a few hundred bytes. Everything else is in its part."""

    part: str
    part_offset: int
    part_row: int
    license: str
    license_from: str | None


class PlacedDocument(PreparedDocument, frozen=True, kw_only=True, gc=False, array_like=True):
    """A document in its split. Step 2 may cut spans out of it, change how often its windows occur, or make variants."""

    group: str
    """Group of files that must be in the same split."""
    split: Split
    moved_from: Split | None
    """Split of an earlier build, if it was another."""
    cuts: tuple[Cut, ...] = ()
    drops_touched_windows: bool = False
    """True if windows that touch a cut are dropped, instead of cutting the ranges out."""
    num_cut_tokens: int = 0
    """Tokens that are in no window because they are in a span that is also in another split or in a benchmark."""
    draw: Draw | None = None
    """None if each window has one row."""
    num_undrawn_tokens: int = 0
    """Tokens that are in no row because their windows were not drawn."""
    weight: float = 1.0
    """Weight of its rows, with --weights-only."""
    variant: Variant | None = None
    """None if it is the file itself."""
    fim: Fim | None = None
    """None if it is not rewritten for fill in the middle."""

    @property
    def num_file_tokens(self) -> int:
        """Tokens of the file's text. Differs from num_tokens if the document was rewritten."""
        return self.num_tokens if self.fim is None else self.fim.num_file_tokens

    @property
    def num_uncut_tokens(self) -> int:
        """Tokens of the file that are in at least one row: not cut, and drawn."""
        return self.num_file_tokens - self.num_cut_tokens - self.num_undrawn_tokens

    def before_rewriting(self) -> "PlacedDocument":
        """Return the document before it was rewritten, except that its sizes remain those of the rewritten one."""
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
    """Facts about a document that are only written to files.jsonl. They are kept on disk."""

    sha256: str | None
    """Same as Document.sha256."""
    encoding: str
    num_lines: int
    measures: bytes | None
    redactions: tuple[Redaction, ...]
    respellings: tuple[Respelling, ...]


AnyStoredText = StoredText | PreparedDocument
