"""A source text -> the same in other words, by a language model that the user runs.

    paraphrase          text -> text
    back_translation    text -> a description in English -> text

    with Rewriter(Endpoint(url="http://localhost:8000/v1"), cache) as rewriter:
        for task, outcome in rewriter.rewrite_all(tasks): ...

A model need not say the same twice: what makes a build repeatable is the cache, one file per answer, named by all that
decides it: the model's name, prompt, seed, temperature and length. Where the server runs is not part of it: the same
model may stand on another machine tomorrow.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self

import msgspec

from gristmill.errors import OutputError
from gristmill.records import WhyNoVariant
from gristmill.shaping.variants.grammars import is_parsable, parse
from gristmill.shaping.variants.rewriting.answercache import AnswerCache
from gristmill.shaping.variants.rewriting.answers import UnusableAnswerError, code_in, in_manner_of, usable_text
from gristmill.shaping.variants.rewriting.asking import Asking, encoded_request
from gristmill.shaping.variants.rewriting.endpoint import Endpoint, tokens_in
from gristmill.shaping.variants.rewriting.exchanging import NoAnswerError
from gristmill.shaping.variants.rewriting.prompts import description_prompt, implementation_prompt, paraphrase_prompt
from gristmill.shaping.variants.rewriting.signatures import signatures_of

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
