"""What a model answered -> the source text in it, in the manner of its parent, or why it is of no use."""

import hashlib
import re
from pathlib import Path
from typing import TypeVar

import msgspec

from gristmill.core.http import Fault, NoAnswerError
from gristmill.core.layout import write_atomically
from gristmill.core.plain_files import open_plain
from gristmill.variants.grammars import Parsed, is_hard_to_query, is_parsable, parse

Shape = TypeVar("Shape")

OPENING = re.compile(r"^ {0,3}(`{3,}+)[^`\n]*+$\n?", re.MULTILINE)
CUT_OFF = "length"
MAX_GROWTH = 4
"""From a quarter of its parent's length to four times: beyond that it is another text, or a piece of one."""
MAX_NAME_CHARACTERS = 500


class UnusableAnswerError(Exception):
    """For this room alone. It says what is wrong, and shows nothing of the answer."""


class Reply(msgspec.Struct, frozen=True):
    """What the cache keeps, usable or not: asking again would cost the same and say the same."""

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
    """What is no chat completion raises NoAnswerError: the server said nothing about the text."""
    completion = _decoded(body, _COMPLETION, "chat completion")
    if not completion.choices:
        raise NoAnswerError(Fault.LASTING, "a chat completion without choices")
    choice = completion.choices[0]
    return Reply(choice.message.content or "", choice.finish_reason)


def listed_models(body: bytes) -> list[str]:
    """At least one."""
    names = [model.id for model in _decoded(body, _MODELS, "list of models").data]
    if not names:
        raise NoAnswerError(Fault.LASTING, "a list of models that is empty")
    if not all(name.isprintable() and 0 < len(name) <= MAX_NAME_CHARACTERS for name in names):
        raise NoAnswerError(Fault.LASTING, "a list of models with names that are none")
    return names


def usable_text(reply: Reply) -> str:
    if reply.finish_reason == CUT_OFF:
        raise UnusableAnswerError("the answer is cut off at max_tokens")
    if not reply.content.strip():
        raise UnusableAnswerError("the answer is empty")
    if "\0" in reply.content:
        raise UnusableAnswerError("the answer has a NUL in it")
    return reply.content


def code_in(answer: str) -> str:
    """The first fenced block, or all of it where there is none."""
    answer = answer.replace("\r\n", "\n")
    opening = OPENING.search(answer)
    if opening is None:
        return answer
    closing = re.compile(rf"^ {{0,3}}`{{{len(opening[1])},}}+[ \t]*+$", re.MULTILINE).search(answer, opening.end())
    if closing is None:
        raise UnusableAnswerError("the code block in the answer is never closed")
    code = answer[opening.end() : closing.start()]
    if not code.strip():
        raise UnusableAnswerError("the code block in the answer is empty")
    return code


def in_manner_of(parent: bytes, code: str) -> bytes:
    """With the line ends of the parent, and a line feed at the end where the parent has one."""
    text = code.replace("\r\n", "\n").encode()
    if not parent.endswith(b"\n"):
        text = text.rstrip(b"\n")
    elif not text.endswith(b"\n"):
        text += b"\n"
    return text.replace(b"\n", b"\r\n") if _is_crlf_throughout(parent) else text


def why_refused(parent: Parsed, answer: bytes) -> str | None:
    """None: it is a text of the same language that differs from its parent."""
    if not is_parsable(parent.language):
        return f"there is no grammar for {parent.language} to check it with"
    if b"".join(answer.split()) == b"".join(parent.text.split()):
        return "it is its parent again, but for white space"
    if not len(parent.text) <= MAX_GROWTH * len(answer) <= MAX_GROWTH * MAX_GROWTH * len(parent.text):
        return f"it has {len(answer)} bytes, its parent {len(parent.text)}"
    parsed = parse(answer, parent.language)
    if is_hard_to_query(parsed):
        return "it is too deep to be checked"
    num_errors, num_allowed = parsed.num_errors, parent.num_errors
    if num_errors > num_allowed:
        return f"it has {num_errors} syntax errors, its parent {num_allowed}"
    return None


def _is_crlf_throughout(text: bytes) -> bool:
    return 0 < text.count(b"\n") == text.count(b"\r\n")


def _decoded(body: bytes, decoder: "msgspec.json.Decoder[Shape]", what: str) -> Shape:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        reason = f"JSON that is no {what}"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        is_page = body.lstrip()[:1] == b"<"
        reason = "a web page, no JSON: check the URL" if is_page else "no JSON"
    raise NoAnswerError(Fault.LASTING, reason)


# Answers that were paid for, one file each: `cache/3f/3fa9…` holds the digest of its content, a line feed, and
# that.

VERSION = b"gristmill answer 1\n"
MAX_FILE_BYTES = 64 << 20
"""Eight times what an answer may have: JSON writes a control character in six."""


class AnswerCache:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, request: bytes) -> Reply | None:
        try:
            with open_plain(self._place(request)) as stream:
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
        place = self._place(request)
        content = msgspec.json.encode(reply)
        place.parent.mkdir(exist_ok=True)
        write_atomically(place, hashlib.sha256(content).hexdigest().encode() + b"\n" + content, is_synced=False)

    def _place(self, request: bytes) -> Path:
        name = hashlib.sha256(VERSION + request).hexdigest()
        return self.folder / name[:2] / name
