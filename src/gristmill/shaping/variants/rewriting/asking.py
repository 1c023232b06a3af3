"""A request to the endpoint -> its answer: tried again after a while, and given up where nothing answers any more."""

import threading
import time
from datetime import UTC
from email.utils import parsedate_to_datetime

import msgspec

from gristmill.errors import InputError
from gristmill.shaping.variants.rewriting.answers import Reply, listed_models, read_reply
from gristmill.shaping.variants.rewriting.endpoint import COMPLETIONS, MODELS, Endpoint
from gristmill.shaping.variants.rewriting.exchanging import Fault, NoAnswerError, StoppedError, exchange

FIRST_WAIT_SECONDS = 0.5
MAX_WAIT_SECONDS = 30.0
MAX_RETRY_AFTER_SECONDS = 120.0
MAX_FAILED_IN_A_ROW = 20
GO_ON = "Answers so far are kept: the same command goes on from there"


class Asking:
    """For many threads at once."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._num_failed_in_a_row = 0
        self._gave_up_over: str | None = None

    def stop(self) -> None:
        """Whatever is on its way ends within a moment, and nothing more is asked."""
        self._stop.set()

    def ask(self, request: bytes) -> Reply:
        """Raises NoAnswerError, and InputError once nothing answers any more."""
        try:
            reply = read_reply(self._retried(COMPLETIONS, request))
        except NoAnswerError as error:
            self._count_failed(error)
            raise
        except StoppedError:
            raise self._given_up() from None
        with self._lock:
            self._num_failed_in_a_row = 0
        return reply

    def first_model(self) -> str:
        try:
            return listed_models(self._retried(MODELS, None))[0]
        except NoAnswerError as error:
            raise InputError(
                f"the rewrite endpoint {self._endpoint.base} does not say which models it has: {error.reason}. "
                f"Start it, or name the model. {GO_ON}."
            ) from None

    def _retried(self, path: str, body: bytes | None) -> bytes:
        for attempt in range(self._endpoint.num_retries):
            try:
                return exchange(self._endpoint.request(path, body), self._stop)
            except NoAnswerError as error:
                if error.fault is not Fault.PASSING:
                    raise
                wait_seconds = seconds_to_wait(attempt, error.retry_after)
            if self._stop.wait(wait_seconds):
                raise StoppedError
        return exchange(self._endpoint.request(path, body), self._stop)

    def _count_failed(self, error: NoAnswerError) -> None:
        if error.fault is Fault.OF_THIS_TEXT:
            return
        with self._lock:
            self._num_failed_in_a_row += 1
            if self._num_failed_in_a_row < MAX_FAILED_IN_A_ROW:
                return
            self._gave_up_over = self._gave_up_over or error.reason
        self.stop()
        raise self._given_up() from None

    def _given_up(self) -> Exception:
        if self._gave_up_over is None:
            return StoppedError()
        return InputError(
            f"the rewrite endpoint {self._endpoint.base} gave no answer to {MAX_FAILED_IN_A_ROW} texts in a row; "
            f"the last time: {self._gave_up_over}. See that it runs and has room. {GO_ON}."
        )


def encoded_request(endpoint: Endpoint, model: str, prompt: str, seed: int, max_tokens: int) -> bytes:
    """All that decides the answer, and nothing else: it is the cache's key as well."""
    request = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": float(endpoint.temperature),
        "seed": seed & 0x7FFFFFFF,  # some servers keep it in 32 bits
        "max_tokens": max_tokens,
        "stream": False,
    }
    return msgspec.json.encode(request)


def seconds_to_wait(attempt: int, retry_after: str | None) -> float:
    """`120` and `Fri, 31 Dec 1999 23:59:59 GMT` are what a server may say; whatever else it says is ignored."""
    said = _seconds_in(retry_after) if retry_after else None
    if said is None:
        return min(FIRST_WAIT_SECONDS * 2.0**attempt, MAX_WAIT_SECONDS)
    return min(max(said, 0.0), MAX_RETRY_AFTER_SECONDS)


def _seconds_in(retry_after: str) -> float | None:
    try:
        return float(int(retry_after))
    except (ValueError, OverflowError):
        pass
    try:
        until = parsedate_to_datetime(retry_after)
    except (ValueError, OverflowError):
        return None
    return (until if until.tzinfo else until.replace(tzinfo=UTC)).timestamp() - time.time()
