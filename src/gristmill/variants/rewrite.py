"""Rewrite source texts with a language model that the user runs.

    paraphrase          text -> text
    back_translation    text -> a description in English -> text

    with Rewriter(Endpoint(url="http://localhost:8000/v1"), cache) as rewriter:
        for task, outcome in rewriter.rewrite_all(tasks): ...

A model may give different answers to the same request, so a cache of answers makes a build repeatable. The name of a
cached file is a hash of everything that determines the answer: the model's name, the prompt, the seed, the temperature
and the maximum length. The address of the server is not included, because the same model may later run on a different
machine.
"""

import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import msgspec

from gristmill.core.errors import OutputError
from gristmill.core.http import NoAnswerError
from gristmill.core.records import WhyNoVariant
from gristmill.variants.answers import (
    AnswerCache,
    UnusableAnswerError,
    extract_code,
    match_line_ends,
    require_usable_text,
)
from gristmill.variants.endpoint import Endpoint, EndpointClient, encode_request, estimate_tokens
from gristmill.variants.grammars import Parsed, is_parsable, parse

if TYPE_CHECKING:
    from tree_sitter import Node


# Prompts. If a prompt changes, no cached answer is used, and the model is asked again for each text.

FENCE = "`"
MIN_FENCE_LENGTH = 3

PARAPHRASE = """\
Rewrite this {language} file so that it does exactly the same and is written differently: other names for what is \
local, other but equivalent control flow, expressions and idioms, other comments, another order of definitions where \
the order has no effect. Keep every name, signature, string and number that can be seen from outside the file. \
Answer with the whole file in one fenced code block and nothing else.

{code}
"""

DESCRIBE = """\
Describe precisely and in plain English what this {language} file does, so that a programmer who never sees it can \
write a file that does the same: each definition and what it is for, its inputs, results, side effects, errors and \
edge cases, what it imports, and every constant and string that can be seen from outside. Write no code.

{code}
"""

IMPLEMENT = """\
Write the {language} file that this description is of. Answer with the whole file in one fenced code block and \
nothing else.

{description}

Keep these names and signatures as they are:

{signatures}
"""


def paraphrase_prompt(text: str, language: str) -> str:
    return PARAPHRASE.format(language=language, code=_fence_text(text))


def description_prompt(text: str, language: str) -> str:
    return DESCRIBE.format(language=language, code=_fence_text(text))


def implementation_prompt(description: str, signatures: list[str], language: str) -> str:
    fenced = _fence_text("\n".join(signatures) or "(none)")
    return IMPLEMENT.format(language=language, description=description.strip(), signatures=fenced)


def _fence_text(text: str) -> str:
    """Put a text between fences that are longer than any fence in the text. A docstring may contain fenced code."""
    longest = max(map(len, re.findall(f"{FENCE}+", text)), default=0)
    fence = FENCE * max(MIN_FENCE_LENGTH, longest + 1)
    return f"{fence}\n{text.removesuffix(chr(10))}\n{fence}"


# Signatures in a syntax tree. Code written from a description must keep the signatures, so that callers still work.

MAX_SIGNATURES = 200
MAX_SIGNATURE_CHARACTERS = 300
MAX_DEPTH = 12
"""Maximum depth of the search. A method in a class in a namespace in a preprocessor block has depth 8."""

NAME_FIELDS = ("name", "declarator", "left", "type")
HEAD_END_FIELDS = ("body", "value", "right")
"""Fields at which the head of a definition ends."""
HEAD_ONLY_TYPES = frozenset(
    {
        "declaration",
        "enum_variant",
        "field_declaration",
        "function_signature",
        "function_signature_item",
        "method_declaration",
        "method_elem",
        "method_signature",
        "property_signature",
        "type_definition",
        "type_spec",
    }
)
"""Types of nodes that may consist of only a head, without any of HEAD_END_FIELDS."""
LOCAL_SCOPE_TYPES = ("function", "method", "constructor", "lambda", "call", "closure", "for", "comprehension", "while")
"""Words in node types. If the type of a node contains one of these words, all names in the node are local."""


def find_signatures(parsed: Parsed) -> list[str]:
    """Return the signatures that callers can see, up to MAX_SIGNATURES, each indented by its nesting."""
    return list(islice(_find_heads(parsed.tree.root_node, parsed.text), MAX_SIGNATURES))


def _find_heads(node: "Node", text: bytes, depth: int = 0, indent: str = "") -> Iterator[str]:
    for child in node.named_children:
        is_local_scope = any(part in child.type for part in LOCAL_SCOPE_TYPES)
        end = None if is_local_scope and child.child_by_field_name("left") else _find_head_end(child)
        if end is not None:
            yield indent + _join_lines(text[child.start_byte : end])
        # If a node has a head, only its body is searched. A value, such as a million numbers, defines nothing.
        inner = child if end is None else child.child_by_field_name("body")
        if inner is not None and not is_local_scope and depth < MAX_DEPTH:
            yield from _find_heads(inner, text, depth + 1, indent if end is None else f"{indent}  ")


def _find_head_end(node: "Node") -> int | None:
    """Return the end of the head of a definition, or None if the node defines nothing."""
    if not any(node.child_by_field_name(field) for field in NAME_FIELDS):
        return None
    ends = [child for field in HEAD_END_FIELDS if (child := node.child_by_field_name(field))]
    if not ends:
        return node.end_byte if node.type in HEAD_ONLY_TYPES else None
    first = min(ends, key=lambda child: child.start_byte)
    body = first.child_by_field_name("body")  # `const area = (width, height) => {`
    return body.start_byte if body and "function" in first.type else first.start_byte


def _join_lines(head: bytes) -> str:
    return " ".join(head.decode("utf-8", "replace").split())[:MAX_SIGNATURE_CHARACTERS].rstrip(" ={")


Way = Literal["paraphrase", "back_translation"]

TASKS_PER_THREAD = 4
"""Maximum number of unfinished tasks per thread.

With several tasks, the other threads stay busy during one slow answer. The limit bounds memory use.
"""


class RewriteTask(NamedTuple):
    """A text to rewrite, and the way to rewrite it."""

    key: Hashable
    """Any value that identifies the task to the caller."""
    text: bytes
    """UTF-8 without secrets, because the text is sent to the endpoint."""
    language: str
    seed: int
    way: Way


class Rewritten(NamedTuple):
    """Result of rewriting a text."""

    text: bytes
    """Rewritten text, not yet checked by answers.find_refusal_reason."""


class Failure(NamedTuple):
    """Reason why a text could not be rewritten."""

    why: Literal[WhyNoVariant.NO_ANSWER, WhyNoVariant.ANSWER_REFUSED, WhyNoVariant.TEXT_TOO_LONG]
    """Kind of failure. A later run asks the model again only after NO_ANSWER."""
    reason: str
    """Message of one line, without any part of the text or the key."""


Outcome = Rewritten | Failure


class _TooLongError(Exception):
    """The prompt and its answer do not fit into the context, so the prompt is not sent."""


def _return_unchanged(text: str, _language: str) -> str:
    return text


class Rewriter:
    """Context manager that rewrites texts with a model, in several threads.

    On exit, requests in progress are canceled, and all threads end.
    """

    def __init__(self, endpoint: Endpoint, cache: Path, clean: Callable[[str, str], str] = _return_unchanged) -> None:
        """`clean` takes an answer and the language of its text, and returns the answer to store."""
        self._endpoint, self._clean = endpoint, clean
        self._cache = AnswerCache(cache)
        self._client = EndpointClient(endpoint)
        self._threads = ThreadPoolExecutor(endpoint.concurrency, thread_name_prefix="rewrite")

    def __enter__(self) -> Self:
        self._endpoint.headers()  # raises ConfigError for an invalid key before any work
        try:
            self._cache.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"cannot create the folder for answers {str(self._cache.folder)!r}: {error.strerror}."
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.stop()
        self._threads.shutdown(wait=True, cancel_futures=True)

    @cached_property
    def model(self) -> str:
        """Name of the model. If no model is configured, the server is asked once for its first model."""
        return self._endpoint.model or self._client.fetch_first_model()

    def rewrite_all(self, tasks: Iterable[RewriteTask]) -> Iterator[tuple[RewriteTask, Outcome]]:
        """Yield each task with its outcome, in the order of `tasks`.

        Raise InputError if the endpoint stops answering.
        """
        pending: deque[tuple[RewriteTask, Future[Outcome]]] = deque()
        try:
            for task in tasks:
                # Two identical requests in progress might get different answers, but the cache stores only one answer.
                identical = [future for other, future in pending if other[1:] == task[1:]]
                pending.append((task, identical[0] if identical else self._start_task(task)))
                if len(pending) == TASKS_PER_THREAD * self._endpoint.concurrency:
                    yield _wait_for(*pending.popleft())
            while pending:
                yield _wait_for(*pending.popleft())
        finally:
            for _, future in pending:
                future.cancel()

    def _start_task(self, task: RewriteTask) -> Future[Outcome]:
        """Start a task. The text is parsed in the calling thread, because threads cannot share a parser."""
        if not is_parsable(task.language):
            return _refused_future(f"there is no grammar for {task.language}, so a rewritten file could not be checked")
        try:
            text = task.text.decode()
        except UnicodeDecodeError:
            return _refused_future("the text is not UTF-8")
        _ = self.model  # fetched before the first thread starts, so that threads need not fetch it
        needs_description = task.way == "back_translation"
        signatures = find_signatures(parse(task.text, task.language)) if needs_description else []
        return self._threads.submit(self._rewrite_one, task, text, signatures)

    def _rewrite_one(self, task: RewriteTask, text: str, signatures: list[str]) -> Outcome:
        try:
            code = extract_code(self._ask_for_code(task, text, signatures))
        except NoAnswerError as error:
            return Failure(WhyNoVariant.NO_ANSWER, error.reason)
        except UnusableAnswerError as error:
            return Failure(WhyNoVariant.ANSWER_REFUSED, str(error))
        except _TooLongError as error:
            return Failure(WhyNoVariant.TEXT_TOO_LONG, str(error))
        return Rewritten(match_line_ends(task.text, code))

    def _ask_for_code(self, task: RewriteTask, text: str, signatures: list[str]) -> str:
        if task.way == "paraphrase":
            return self._ask(paraphrase_prompt(text, task.language), task)
        description = self._ask(description_prompt(text, task.language), task)
        return self._ask(implementation_prompt(description, signatures, task.language), task)

    def _ask(self, prompt: str, task: RewriteTask) -> str:
        max_tokens = self._endpoint.max_answer_tokens(prompt, task.text)
        if max_tokens is None:
            lengths = f"{estimate_tokens(prompt.encode()):,} tokens and an answer of {estimate_tokens(task.text):,}"
            raise _TooLongError(
                f"a prompt of about {lengths} do not fit into the context of {self._endpoint.context_tokens:,} tokens"
            )
        request = encode_request(self._endpoint, self.model, prompt, task.seed, max_tokens)
        reply = self._cache.load(request)
        if reply is None:
            reply = self._client.ask(request)
            reply = msgspec.structs.replace(reply, content=self._clean(reply.content, task.language))
            self._cache.store(request, reply)
        return require_usable_text(reply)


def _wait_for(task: RewriteTask, future: Future[Outcome]) -> tuple[RewriteTask, Outcome]:
    return task, future.result()


def _refused_future(reason: str) -> Future[Outcome]:
    future: Future[Outcome] = Future()
    future.set_result(Failure(WhyNoVariant.ANSWER_REFUSED, reason))
    return future
