"""A source text -> the same in other words, by a language model that the user runs.

    paraphrase          text -> text
    back_translation    text -> a description in English -> text

    with Rewriter(Endpoint(url="http://localhost:8000/v1"), cache) as rewriter:
        for task, outcome in rewriter.rewrite_all(tasks): ...

A model need not say the same twice: what makes a build repeatable is the cache, one file per answer, named by all that
decides it: the model's name, prompt, seed, temperature and length. Where the server runs is not part of it: the same
model may stand on another machine tomorrow.
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
from gristmill.variants.answers import AnswerCache, UnusableAnswerError, code_in, in_manner_of, usable_text
from gristmill.variants.endpoint import Asking, Endpoint, encoded_request, tokens_in
from gristmill.variants.grammars import Parsed, is_parsable, parse

if TYPE_CHECKING:
    from tree_sitter import Node


# A text -> what a model is asked about it. Every word here decides answers: a change asks for all of them anew.

FENCE = "`"
SHORTEST_FENCE = 3

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
    return PARAPHRASE.format(language=language, code=_fenced(text))


def description_prompt(text: str, language: str) -> str:
    return DESCRIBE.format(language=language, code=_fenced(text))


def implementation_prompt(description: str, signatures: list[str], language: str) -> str:
    kept = _fenced("\n".join(signatures) or "(none)")
    return IMPLEMENT.format(language=language, description=description.strip(), signatures=kept)


def _fenced(text: str) -> str:
    """By a fence that the text does not hold: a docstring may show code as well."""
    longest = max(map(len, re.findall(f"{FENCE}+", text)), default=0)
    fence = FENCE * max(SHORTEST_FENCE, longest + 1)
    return f"{fence}\n{text.removesuffix(chr(10))}\n{fence}"


# A syntax tree -> the heads of what it defines: what code written from a description must keep to fit its callers.

MAX_SIGNATURES = 200
MAX_SIGNATURE_CHARACTERS = 300
MAX_DEPTH = 12
"""Of nodes: a method in a class in a namespace in a preprocessor block is at 8."""

NAMING = ("name", "declarator", "left", "type")
ENDING = ("body", "value", "right")
"""The fields where a head ends."""
WHOLE = frozenset(
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
"""Nodes that may have no such field, and are all head."""
RUNS = ("function", "method", "constructor", "lambda", "call", "closure", "for", "comprehension", "while")
"""Parts of the names of nodes within which all is local."""


def signatures_of(parsed: Parsed) -> list[str]:
    return list(islice(_heads(parsed.tree.root_node, parsed.text), MAX_SIGNATURES))


def _heads(node: "Node", text: bytes, depth: int = 0, indent: str = "") -> Iterator[str]:
    for child in node.named_children:
        runs = any(part in child.type for part in RUNS)
        end = None if runs and child.child_by_field_name("left") else _end_of_head(child)
        if end is not None:
            yield indent + _one_line(text[child.start_byte : end])
        # Of what has a head, the body alone: a table of a million numbers defines nothing.
        inside = child if end is None else child.child_by_field_name("body")
        if inside is not None and not runs and depth < MAX_DEPTH:
            yield from _heads(inside, text, depth + 1, indent if end is None else f"{indent}  ")


def _end_of_head(node: "Node") -> int | None:
    """None for what defines nothing."""
    if not any(node.child_by_field_name(field) for field in NAMING):
        return None
    ends = [child for field in ENDING if (child := node.child_by_field_name(field))]
    if not ends:
        return node.end_byte if node.type in WHOLE else None
    first = min(ends, key=lambda child: child.start_byte)
    body = first.child_by_field_name("body")  # `const area = (width, height) => {`
    return body.start_byte if body and "function" in first.type else first.start_byte


def _one_line(head: bytes) -> str:
    return " ".join(head.decode("utf-8", "replace").split())[:MAX_SIGNATURE_CHARACTERS].rstrip(" ={")


Way = Literal["paraphrase", "back_translation"]

TASKS_PER_THREAD = 4
"""Begun ahead of the one whose turn it is: one slow answer keeps the others busy, and memory stays flat."""


class RewriteTask(NamedTuple):
    key: Hashable
    """The caller's own."""
    text: bytes
    """UTF-8, with no secret in it: it leaves this process."""
    language: str
    seed: int
    way: Way


class Rewritten(NamedTuple):
    text: bytes
    """Not yet checked against its parent: answers.why_refused."""


class Failure(NamedTuple):
    why: Literal[WhyNoVariant.NO_ANSWER, WhyNoVariant.ANSWER_REFUSED, WhyNoVariant.TEXT_TOO_LONG]
    """No answer: another run asks again. All else stays so."""
    reason: str
    """One line, without anything of the text or the key."""


Outcome = Rewritten | Failure


class _TooLongError(Exception):
    """It is not sent."""


def _as_it_is(text: str, _language: str) -> str:
    return text


class Rewriter:
    """Owns the threads: when the block is left they have ended, whatever was on its way."""

    def __init__(self, endpoint: Endpoint, cache: Path, clean: Callable[[str, str], str] = _as_it_is) -> None:
        """`clean`: what becomes of an answer, given the language of the text, before it is kept or sent on."""
        self._endpoint, self._clean = endpoint, clean
        self._cache = AnswerCache(cache)
        self._asking = Asking(endpoint)
        self._threads = ThreadPoolExecutor(endpoint.concurrency, thread_name_prefix="rewrite")

    def __enter__(self) -> Self:
        self._endpoint.headers()  # a key that cannot be sent is told before any work
        try:
            self._cache.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot keep answers in {str(self._cache.folder)!r}: {error.strerror}.") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._asking.stop()
        self._threads.shutdown(wait=True, cancel_futures=True)

    @cached_property
    def model(self) -> str:
        """The server is asked at most once."""
        return self._endpoint.model or self._asking.first_model()

    def rewrite_all(self, tasks: Iterable[RewriteTask]) -> Iterator[tuple[RewriteTask, Outcome]]:
        """In the order given. Raises InputError once the endpoint does not answer any more."""
        begun: deque[tuple[RewriteTask, Future[Outcome]]] = deque()
        try:
            for task in tasks:
                # The same question twice, both on their way, might get two answers, of which the cache keeps one.
                same = [future for other, future in begun if other[1:] == task[1:]]
                begun.append((task, same[0] if same else self._begin(task)))
                if len(begun) == TASKS_PER_THREAD * self._endpoint.concurrency:
                    yield _finished(*begun.popleft())
            while begun:
                yield _finished(*begun.popleft())
        finally:
            for _, future in begun:
                future.cancel()

    def _begin(self, task: RewriteTask) -> Future[Outcome]:
        """What needs the grammars is done here: their parsers are not for several threads."""
        if not is_parsable(task.language):
            return _known(f"there is no grammar for {task.language} to check it with")
        try:
            text = task.text.decode()
        except UnicodeDecodeError:
            return _known("the text is not UTF-8")
        _ = self.model  # asked here: by the threads it would be asked once each
        is_described = task.way == "back_translation"
        signatures = signatures_of(parse(task.text, task.language)) if is_described else []
        return self._threads.submit(self._outcome, task, text, signatures)

    def _outcome(self, task: RewriteTask, text: str, signatures: list[str]) -> Outcome:
        try:
            code = code_in(self._answered(task, text, signatures))
        except NoAnswerError as error:
            return Failure(WhyNoVariant.NO_ANSWER, error.reason)
        except UnusableAnswerError as error:
            return Failure(WhyNoVariant.ANSWER_REFUSED, str(error))
        except _TooLongError as error:
            return Failure(WhyNoVariant.TEXT_TOO_LONG, str(error))
        return Rewritten(in_manner_of(task.text, code))

    def _answered(self, task: RewriteTask, text: str, signatures: list[str]) -> str:
        if task.way == "paraphrase":
            return self._answer(paraphrase_prompt(text, task.language), task)
        description = self._answer(description_prompt(text, task.language), task)
        return self._answer(implementation_prompt(description, signatures, task.language), task)

    def _answer(self, prompt: str, task: RewriteTask) -> str:
        max_tokens = self._endpoint.answer_tokens(prompt, task.text)
        if max_tokens is None:
            both = f"about {tokens_in(prompt.encode()):,} tokens and an answer of {tokens_in(task.text):,}"
            raise _TooLongError(f"{both} do not fit into {self._endpoint.context_tokens:,}")
        request = encoded_request(self._endpoint, self.model, prompt, task.seed, max_tokens)
        reply = self._cache.load(request)
        if reply is None:
            reply = self._asking.ask(request)
            reply = msgspec.structs.replace(reply, content=self._clean(reply.content, task.language))
            self._cache.store(request, reply)
        return usable_text(reply)


def _finished(task: RewriteTask, future: Future[Outcome]) -> tuple[RewriteTask, Outcome]:
    return task, future.result()


def _known(reason: str) -> Future[Outcome]:
    future: Future[Outcome] = Future()
    future.set_result(Failure(WhyNoVariant.ANSWER_REFUSED, reason))
    return future
