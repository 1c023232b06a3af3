"""Read the answers of a model, extract the code, check that the code can be used, and cache the answers."""

import hashlib
import re
from pathlib import Path
from typing import TypeVar

import msgspec

from gristmill.core.http import Fault, NoAnswerError
from gristmill.core.layout import write_atomically
from gristmill.core.plain_files import open_plain
from gristmill.variants.grammars import Parsed, is_hard_to_query, is_parsable, parse

Decoded = TypeVar("Decoded")

FENCE_OPENING = re.compile(r"^ {0,3}(`{3,}+)[^`\n]*+$\n?", re.MULTILINE)
CUT_OFF_REASON = "length"
MAX_LENGTH_RATIO = 4
"""Maximum ratio between the longer and the shorter of two texts: an answer and its parent.

The parent is the text that the model rewrites. If the ratio is larger, the answer is probably a different text, or only
a part of the text.
"""
MAX_NAME_CHARACTERS = 500


class UnusableAnswerError(Exception):
    """An answer cannot be used. The message gives the reason without quoting the answer, and is not shown to users."""


class Reply(msgspec.Struct, frozen=True):
    """Answer of a model, in the form that the cache stores.

    Unusable answers are also stored, so that later runs do not pay for the same request again.
    """

    content: str
    finish_reason: str | None


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


_COMPLETION = msgspec.json.Decoder(_Completion)
_MODELS = msgspec.json.Decoder(_Models)


def read_reply(body: bytes) -> Reply:
    """Read a chat completion. Raise NoAnswerError if the body is not a chat completion."""
    completion = _decode(body, _COMPLETION, "chat completion")
    if not completion.choices:
        raise NoAnswerError(Fault.PERMANENT, "the chat completion has no choices")
    choice = completion.choices[0]
    return Reply(choice.message.content or "", choice.finish_reason)


def read_model_names(body: bytes) -> list[str]:
    """Read the model names that a server lists. Raise NoAnswerError if the list is empty or a name is invalid."""
    names = [model.id for model in _decode(body, _MODELS, "list of models").data]
    if not names:
        raise NoAnswerError(Fault.PERMANENT, "the list of models is empty")
    if not all(name.isprintable() and 0 < len(name) <= MAX_NAME_CHARACTERS for name in names):
        raise NoAnswerError(Fault.PERMANENT, "the list of models has invalid names")
    return names


def require_usable_text(reply: Reply) -> str:
    """Return the text of a reply. Raise UnusableAnswerError if the text is empty, is cut off or contains NUL."""
    if reply.finish_reason == CUT_OFF_REASON:
        raise UnusableAnswerError("the answer is cut off at max_tokens")
    if not reply.content.strip():
        raise UnusableAnswerError("the answer is empty")
    if "\0" in reply.content:
        raise UnusableAnswerError("the answer contains a NUL character")
    return reply.content


def extract_code(answer: str) -> str:
    """Return the first fenced code block of an answer, or the complete answer if no such block exists."""
    answer = answer.replace("\r\n", "\n")
    opening = FENCE_OPENING.search(answer)
    if opening is None:
        return answer
    closing = re.compile(rf"^ {{0,3}}`{{{len(opening[1])},}}+[ \t]*+$", re.MULTILINE).search(answer, opening.end())
    if closing is None:
        raise UnusableAnswerError("the code block in the answer is never closed")
    code = answer[opening.end() : closing.start()]
    if not code.strip():
        raise UnusableAnswerError("the code block in the answer is empty")
    return code


def match_line_ends(parent: bytes, code: str) -> bytes:
    """Return the code with the line ends of its parent. The result ends with a line feed only if the parent does."""
    text = code.replace("\r\n", "\n").encode()
    if not parent.endswith(b"\n"):
        text = text.rstrip(b"\n")
    elif not text.endswith(b"\n"):
        text += b"\n"
    return text.replace(b"\n", b"\r\n") if _has_only_crlf(parent) else text


def find_refusal_reason(parent: Parsed, answer: bytes) -> str | None:
    """Return the reason to refuse an answer, or None if the answer can be used as a variant of its parent."""
    if not is_parsable(parent.language):
        return f"there is no grammar for {parent.language}, so the answer cannot be checked"
    if b"".join(answer.split()) == b"".join(parent.text.split()):
        return "the answer differs from its parent only in whitespace"
    if not len(parent.text) <= MAX_LENGTH_RATIO * len(answer) <= MAX_LENGTH_RATIO * MAX_LENGTH_RATIO * len(parent.text):
        return f"the lengths of the answer and its parent differ too much: {len(answer)} and {len(parent.text)} bytes"
    parsed = parse(answer, parent.language)
    if is_hard_to_query(parsed):
        return "the syntax tree of the answer is too large to check"
    num_errors, num_allowed = parsed.num_errors, parent.num_errors
    if num_errors > num_allowed:
        return f"the answer has {num_errors} syntax errors and its parent has {num_allowed}"
    return None


def _has_only_crlf(text: bytes) -> bool:
    return 0 < text.count(b"\n") == text.count(b"\r\n")


def _decode(body: bytes, decoder: "msgspec.json.Decoder[Decoded]", expected: str) -> Decoded:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        reason = f"the answer is JSON but not a {expected}"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        is_page = body.lstrip()[:1] == b"<"
        reason = "the answer is a web page, not JSON: check the URL" if is_page else "the answer is not JSON"
    raise NoAnswerError(Fault.PERMANENT, reason)


# Cache with one file per answer: `cache/3f/3fa9…` contains the digest of the content, a line feed, and the content.

CACHE_VERSION = b"gristmill answer 1\n"
MAX_FILE_BYTES = 64 << 20
"""Maximum size of a cached file: eight times the maximum of an answer. JSON writes a control character in six bytes."""


class AnswerCache:
    """Cache of replies in a folder, keyed by the request."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, request: bytes) -> Reply | None:
        """Return the stored reply, or None if it is missing or damaged."""
        try:
            with open_plain(self._path(request)) as stream:
                digest, _, content = stream.read(MAX_FILE_BYTES).partition(b"\n")
        except OSError:
            return None
        if digest != hashlib.sha256(content).hexdigest().encode():
            return None
        try:
            return msgspec.json.decode(content, type=Reply)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def store(self, request: bytes, reply: Reply) -> None:
        path = self._path(request)
        content = msgspec.json.encode(reply)
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, hashlib.sha256(content).hexdigest().encode() + b"\n" + content, is_synced=False)

    def _path(self, request: bytes) -> Path:
        name = hashlib.sha256(CACHE_VERSION + request).hexdigest()
        return self.folder / name[:2] / name
