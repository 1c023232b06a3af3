"""What flows through the mill: one small record per state of a file.

There may be a hundred thousand of each, so they hold plain values only and stay out of the garbage collector's sight.

    SourceFile          found
    Document            read, decoded and cleaned: its text
    TokenizedDocument   its ids and facts, as they lie in a part of the work folder
    PreparedDocument    where these lie, and its licence
    PlacedDocument      its split, and what of it is shown there
    Drop                at any point: not in the dataset, and why
"""

from enum import StrEnum
from typing import Any, Literal, NamedTuple, Self

import msgspec

FileKey = tuple[str, str]
"""Repo and path."""
Range = tuple[int, int]
"""Half-open, of token indices."""


LONGEST_WINDOW = 1 << 20
NO_LIMIT = 1 << 40
"""Length of a window that holds any document."""
LARGEST_VOCABULARY = 1 << 24


class Split(StrEnum):
    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


class DropStage(StrEnum):
    """The stages that a file passes; a dropped file does not come to that of its reason."""

    READ = "read as text"
    CLEAN = "clean"
    DISTINCT = "distinct"
    KEPT = "kept"


class DropReason(StrEnum):
    """Why a file is not in the dataset, one row each: its name, the stage that the file does not reach, the defect."""

    stage: DropStage
    meaning: str

    def __new__(cls, name: str, stage: DropStage, meaning: str) -> Self:
        self = str.__new__(cls, name)
        self._value_ = name
        self.stage = stage
        self.meaning = meaning
        return self

    EXCLUDED = "excluded", DropStage.READ, "left out by default: images, lock files, build outputs and the like"
    TRANSLATION = (
        "translation",
        DropStage.READ,
        "left out by default: translated messages, as gettext, XLIFF, ARB and Qt keep them",
    )
    EXCLUDED_BY_USER = "excluded_by_user", DropStage.READ, "matches an --exclude pattern"
    NOT_INCLUDED = "not_included", DropStage.READ, "matches no --include pattern"
    LANGUAGE_NOT_WANTED = "language_not_wanted", DropStage.READ, "another language than --language asks for"
    SYMLINK = "symlink", DropStage.READ, "a symbolic link: its target counts where it lies, if that is in the source"
    OUTSIDE_SOURCE = "outside_source", DropStage.READ, "the repository lists it, but its path leads out of the source"
    NOT_A_FILE = "not_a_file", DropStage.READ, "a FIFO, socket, device or a submodule that is not checked out"
    TOO_LARGE = "too_large", DropStage.READ, "larger than --max-file-bytes"
    UNREADABLE = "unreadable", DropStage.READ, "the system refused to open or read it"
    VANISHED = "vanished", DropStage.READ, "listed, but not there when the build came to it"
    CHANGED_WHILE_READ = "changed_while_read", DropStage.READ, "changed during each of three attempts to read it"
    EMPTY = "empty", DropStage.READ, "no bytes, or nothing but a byte order mark"
    BINARY = "binary", DropStage.READ, "neither UTF-8, UTF-16 with a mark, nor clearly Latin-1 text"
    BAD_ROW = "bad_row", DropStage.READ, "a table's row without text in it"
    BAD_NOTEBOOK = "bad_notebook", DropStage.READ, "a notebook that cannot be taken apart into cells"
    VENDORED = "vendored", DropStage.CLEAN, "other people's code: in a folder named vendor, third_party and the like"
    LOCK_FILE = "lock_file", DropStage.CLEAN, "pinned dependencies"
    GENERATED = "generated", DropStage.CLEAN, "written by a program: it says so, is named so, or is a source map"
    MINIFIED = "minified", DropStage.CLEAN, "made small for a browser"
    ONE_LINE = "one_line", DropStage.CLEAN, "all of it in one long line"
    ENCODED_DATA = "encoded_data", DropStage.CLEAN, "base64, hex or escapes in a long run, or in most of it"
    TOO_SHORT = "too_short", DropStage.CLEAN, "nothing but blanks in it, or hardly more"
    MEAN_LINE_TOO_LONG = "mean_line_too_long", DropStage.CLEAN, "its mean line is too long"
    LINE_TOO_LONG = "line_too_long", DropStage.CLEAN, "its longest line is too long"
    TOO_LITTLE_ALPHABETIC = "too_little_alphabetic", DropStage.CLEAN, "too few letters in it"
    HOLDS_SECRET = (
        "holds_secret",
        DropStage.CLEAN,
        "holds a secret, with --secrets drop; or one that cannot be redacted",
    )
    CONTROL_SPELLING = (
        "control_spelling",
        DropStage.CLEAN,
        "spells a control token, with --control-spellings drop; or one that cannot be respelled",
    )
    LICENSE_NOT_ALLOWED = "license_not_allowed", DropStage.CLEAN, "its licence is not on --license-allow, or unknown"
    NO_TOKENS = "no_tokens", DropStage.CLEAN, "the tokenizer makes nothing of it"
    CONTROL_TOKEN = "control_token", DropStage.CLEAN, "the tokenizer would turn its text into a control token"
    EXACT_DUPLICATE = (
        "exact_duplicate",
        DropStage.DISTINCT,
        "the same text as a file earlier in path order, which stays",
    )
    NEAR_DUPLICATE = (
        "near_duplicate",
        DropStage.DISTINCT,
        "shares 0.7 or more of its 5-grams with the first of its cluster, which stands for it",
    )
    CONTAMINATED = "contaminated", DropStage.KEPT, "nearly all of it is in another split too, or in a benchmark"
    FAILED = (
        "failed",
        DropStage.READ,
        "it could not be read, or its worker died on it, in each of three attempts; with --skip-failed",
    )


class SourceFile(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    repo: str
    """The source folder's name, or what a table's row says."""
    path: str
    """Relative to the source, with `/`, in the one documented escape (core/names.py)."""
    location: str
    """Where to open it. Never leaves this machine: no output carries it."""
    size: int
    offset: int | None = None
    """Inside the file at `location`; None: all of it."""
    license: str | None = None
    """An SPDX expression or NOASSERTION, as a table says; None where nothing was said."""
    may_be_translation: bool = False
    """Qt's translations are named like TypeScript: if its content is one, it is left out."""
    stamp: int | None = None
    """Of its inode, size and times: the same stamp, the same content. None where nothing is known, or it is so new that
    the clock might not show another change."""


class Redaction(msgspec.Struct, frozen=True, gc=False):
    """A secret that was taken out: never its value."""

    kind: str
    line: int
    start: int
    """Bytes of the text before redaction."""
    end: int
    hash: str
    """Four hex digits, salted: tells two values apart, and confirms no guess."""


class Respelling(msgspec.Struct, frozen=True, gc=False):
    """A blank that was put into the spelling of a control token."""

    spelling: str
    """As it was found, like `<|endoftext|>`."""
    line: int
    at: int
    """Byte offset of the blank in the redacted text before respelling."""


class Cut(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A range of tokens that is also elsewhere, and where."""

    start: int
    end: int
    shared_with: str
    first_line: int = 0
    last_line: int = 0
    """The lines on which its first and last token begin; 0 until that is known."""


class Draw(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How often a file's windows are shown: each so many times, and some of them once more."""

    passes: int
    extra: int
    seed: int
    """Decides which."""


class VariantKind(StrEnum):
    """In this order their rows stand behind those of the file itself."""

    RENAME = "rename"
    COMMENTS = "comments"
    FORMAT = "format"
    REWRITE = "rewrite"
    NOISE = "noise"


class VariantTraits(NamedTuple):
    """What a kind of variant is. variants/kinds.py has the function that makes it."""

    what: str
    """What becomes of the file."""
    makes: Literal["text", "windows"]
    """Another text, cut into windows as any file; or windows that are each by itself, from places in the file."""
    keeps: tuple[Literal["tree", "meaning"], ...] = ()
    """Properties that are certainly the same: the syntax tree, the behaviour of the program."""
    needs_grammar: bool = False
    """It exists for languages that have a grammar; otherwise for any."""
    needs_mask: bool = False
    """It puts the mask token into windows, so the tokenizer must have one."""
    has_labels: bool = False
    """Its ids do not spell the file: the column `labels` has those that do."""
    asks_model: bool = False
    """A language model writes it: another answer, another text."""
    settings: tuple[str, ...] = ()
    """Of this kind alone; a name that ends with a point stands for a whole section."""


VARIANTS: dict[VariantKind, VariantTraits] = {
    VariantKind.RENAME: VariantTraits(
        "other names for local variables, scope by scope; never a public name, an attribute, an import",
        makes="text",
        keeps=("tree", "meaning"),
        needs_grammar=True,
    ),
    VariantKind.COMMENTS: VariantTraits(
        "comments stripped, some of them stripped, or moved",
        makes="text",
        keeps=("meaning",),
        needs_grammar=True,
    ),
    VariantKind.FORMAT: VariantTraits(
        "another indent, other quotes, other blank lines",
        makes="text",
        keeps=("meaning",),
        needs_grammar=True,
    ),
    VariantKind.REWRITE: VariantTraits(
        "the file in other words, by a language model that you run",
        makes="text",
        needs_grammar=True,
        asks_model=True,
        settings=("rewrite.",),
    ),
    VariantKind.NOISE: VariantTraits(
        "spans masked and tokens deleted in `input_ids`, the clean window in `labels` (other rows have their own ids "
        "there; padding is -100)",
        makes="windows",
        needs_mask=True,
        has_labels=True,
        settings=("variants.noise_mask", "variants.noise_span", "variants.noise_delete"),
    ),
}

BY_THEMSELVES = frozenset(kind for kind, one in VARIANTS.items() if one.makes == "windows")
"""Variants whose neighbouring windows are no neighbours in any text."""
WITH_LABELS = frozenset(kind for kind, one in VARIANTS.items() if one.has_labels)
"""Variants whose ids spell no text."""


class Variant(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a document is, beside the file that it goes by."""

    kind: VariantKind
    seed: int
    """With it and the file's text, the same comes out."""
    edges: tuple[int, ...] = ()
    """Of windows that are each by itself: where each begins among the ids, and the end."""
    places: tuple[Range, ...] = ()
    """Where each of these is from, among the file's own tokens."""
    num_file_tokens: int = 0
    """The file's own."""
    own: tuple[int, ...] = ()
    """Of another text: the windows, by number, that are the file's own. They are not shown, as they would be copies."""

    @property
    def is_text(self) -> bool:
        """Another text, cut into windows as any; else each window is by itself, from a piece of the file's text."""
        return self.kind not in BY_THEMSELVES

    @property
    def has_labels(self) -> bool:
        return self.kind in WITH_LABELS


class Reason(StrEnum):
    """A reason with its meaning: one row for each."""

    meaning: str

    def __new__(cls, name: str, meaning: str) -> Self:
        self = str.__new__(cls, name)
        self._value_ = name
        self.meaning = meaning
        return self


class WhyNoVariant(Reason):
    """Why a file that was chosen for a variant has none."""

    FILE_WAS_CUT = "file_was_cut", "spans were cut out of the file itself, and must not come back"
    LANGUAGE_NOT_KNOWN = "language_not_known", "there is no grammar for its language"
    TEXT_NOT_GIVEN_BACK = "text_not_given_back", "the tokenizer does not give its text back, or parts of it"
    NOTHING_TO_VARY = "nothing_to_vary", "it has no such names, comments or layout that could be another"
    SYNTAX_ERRORS = "syntax_errors", "its grammar finds errors in it, or cannot get through it"
    MORE_ERRORS = "more_errors", "the variant has more syntax errors than the file"
    HOLDS_SECRET = "holds_secret", "the variant holds what looks like a secret"
    CONTROL_TOKEN = "control_token", "the tokenizer makes nothing of it, or a control token"
    NO_ANSWER = "no_answer", "the endpoint did not answer; another build asks again"
    ANSWER_REFUSED = "answer_refused", "the answer is no code, the same code, or has more syntax errors"
    TEXT_TOO_LONG = (
        "text_too_long",
        "it and an answer of its length do not fit into the model's context; it was not sent",
    )
    DUPLICATE = "duplicate", "the same text is in the corpus already"
    SHARES_SPAN = "shares_span", "it shares 50 tokens with a held-out file or a benchmark, and the file does not"
    FAILED = "failed", "a worker died or hung over it in each of three attempts; with --skip-failed"


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
    STATEMENT = "statement"
    """Also a declaration or a definition: a function, a class, an import."""
    BLOCK = "block"
    BODY = "body"
    """The block of a function, a method, a class or the like."""
    ARGUMENTS = "arguments"
    """Brackets included."""
    LINES = "lines"
    CHARACTERS = "characters"


class FimWindow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A window of a rewritten document: a piece of its file with the middle last, or, without a form, as it is."""

    start: int
    end: int
    """Its place among the file's tokens."""
    num_ids: int
    """Sentinels included."""
    form: FimForm | None = None
    middle: MiddleKind | None = None
    num_middle_tokens: int = 0


class Fim(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A document's rewriting for fill in the middle. Its part has the ids of these windows, end to end."""

    seed: int
    """The same seed and text give the same windows."""
    windows: tuple[FimWindow, ...]
    closes: bool
    """The ids that end a document follow each rewritten window; if False, the end token is in the window's own ids."""
    num_file_tokens: int
    file_part: str
    file_part_offset: int
    file_part_bytes: int
    """Place of the file's own ids."""

    @property
    def num_rewritten(self) -> int:
        return sum(one.form is not None for one in self.windows)


class WhyPlain(Reason):
    """Why a file that was chosen for fill in the middle is not rewritten."""

    FILE_WAS_CUT = "file_was_cut", "spans were cut out of it"
    TEXT_NOT_GIVEN_BACK = "text_not_given_back", "the tokenizer does not give its text back, or parts of it"
    SPELLS_CONTROL_TOKEN = (
        "spells_control_token",
        "rows have a text, and this one spells a control token, which a reader would take for a sentinel",
    )
    NO_MIDDLE = "no_middle", "it is too short, or a window of it is blank"
    FAILED = "failed", "a worker died or hung over it in each of three attempts; with --skip-failed"


class NotRewritten(msgspec.Struct, frozen=True, gc=False, array_like=True):
    repo: str
    path: str
    why: WhyPlain


class Drop(msgspec.Struct, frozen=True, kw_only=True, gc=False, array_like=True):
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
    """Where it would be, if it was dropped after the splits were made: a later build keeps to it."""
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
        names: tuple[str, ...] = ()
        if isinstance(file, PreparedDocument):
            names = ("language", "text_sha256", "num_tokens", "license", "license_from")
        if isinstance(file, PlacedDocument):
            names += ("cuts", "group", "split", "moved_from")
        more = {**{name: getattr(file, name) for name in names}, **more}
        return cls(repo=file.repo, path=file.path, reason=reason, detail=detail, size=file.size, **more)


class Document(msgspec.Struct, frozen=True, kw_only=True):
    file: SourceFile
    text: bytes
    """UTF-8, without a byte order mark; line ends as they are in the file."""
    encoding: str
    """`text.decode().encode(encoding)` gives the file's bytes back (a UTF-16 file's without its mark)."""
    language: str
    size: int
    """Of the file as it was read, in bytes."""
    sha256: str | None
    """Of the file's bytes, as `sha256sum` prints it; None where secrets were taken out, since the digest of a text with
    one hole in it would confirm a guess of what was in the hole."""
    is_as_read: bool = False
    """The text is the file's bytes: not decoded, no cells of a notebook, nothing redacted or respelled."""
    measures: bytes | None = None
    """What the cleaning rules measured, as JSON."""
    redactions: tuple[Redaction, ...] = ()
    respellings: tuple[Respelling, ...] = ()

    @property
    def repo(self) -> str:
        return self.file.repo

    @property
    def path(self) -> str:
        return self.file.path


class StoredText(msgspec.Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """A text whose ids are in a part of the work folder: a benchmark's, or what little a task needs of a document."""

    repo: str
    path: str
    num_tokens: int
    part: str
    part_offset: int
    part_row: int
    """Which of the part's texts it is, counted from 0."""

    @property
    def name(self) -> str:
        return f"{self.repo}/{self.path}"


class TokenizedText(msgspec.Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """The facts about a document that step 1 finds and all later steps keep."""

    repo: str
    path: str
    language: str
    size: int
    text_sha256: str
    """Digest of the text that was tokenized. It identifies a file whatever its encoding, name or notebook outputs."""
    num_tokens: int
    num_newlines: int
    part_bytes: int
    num_windows: int
    num_emitted_tokens: int
    """Tokens in all its windows, special tokens and padding included."""
    num_shown_tokens: int
    """Its own tokens in all its windows; a token in two windows counts twice."""
    num_tail_tokens_dropped: int
    num_row_bytes: int
    """Exactly what its rows will take in the output, so that every piece knows its place before it is written. (In its
    part: without the columns that only step 2 fills.)"""

    @property
    def key(self) -> FileKey:
        return self.repo, self.path

    @property
    def name(self) -> str:
        return f"{self.repo}/{self.path}"


class TokenizedDocument(TokenizedText, frozen=True, kw_only=True, gc=False, array_like=True):
    """A document as its part keeps it. Where its ids are in the part follows from the documents before it."""

    header_license: str | None
    """By an SPDX tag."""
    named_license: str | None
    """A family of licences that its first lines name in words."""
    declared_license: str | None
    """As a table says."""


class PreparedDocument(TokenizedText, frozen=True, kw_only=True, gc=False, array_like=True):
    """What is kept in memory of a document, some hundred bytes: everything else is in its part."""

    part: str
    part_offset: int
    part_row: int
    license: str
    license_from: str | None


class PlacedDocument(PreparedDocument, frozen=True, kw_only=True, gc=False, array_like=True):
    """A document in its split. Step 2 may cut spans out of it, show its windows more or less often, or vary it."""

    group: str
    """What it shares its split with."""
    split: Split
    moved_from: Split | None
    """An earlier build had it in this other split."""
    cuts: tuple[Cut, ...] = ()
    drops_touched_windows: bool = False
    """Instead of cutting the ranges out."""
    num_cut_tokens: int = 0
    """Tokens that no window shows because of spans that are also in another split, or in a benchmark."""
    draw: Draw | None = None
    """None: each window is shown once."""
    num_left_tokens: int = 0
    """Tokens that no window shows because those that would were not drawn."""
    weight: float = 1.0
    """Of its rows, with --weights-only."""
    variant: Variant | None = None
    """None: it is the file itself."""
    fim: Fim | None = None
    """None: it is not rewritten for fill in the middle."""

    @property
    def num_file_tokens(self) -> int:
        """Tokens of the file's text; differs from num_tokens if the document was rewritten."""
        return self.num_tokens if self.fim is None else self.fim.num_file_tokens

    @property
    def num_uncut_tokens(self) -> int:
        """Each once, but for those that are not drawn."""
        return self.num_file_tokens - self.num_cut_tokens - self.num_left_tokens

    def as_file(self) -> "PlacedDocument":
        """The document as it was before it was rewritten. Its sizes are those of the rewritten one."""
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
    """What files.jsonl tells of a document and no step asks for: it stays on disk."""

    sha256: str | None
    """As the Document's."""
    encoding: str
    num_lines: int
    measures: bytes | None
    redactions: tuple[Redaction, ...]
    respellings: tuple[Respelling, ...]


AnyStoredText = StoredText | PreparedDocument
