"""Where the language model is that rewrites, and how it is asked.

The address carries no secret: it is refused with one in it, so that any message may show it. The key is read from the
environment for each request and kept nowhere.
"""

import math
import os
import re
import threading
import time
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import msgspec

from gristmill.config.settings import RewriteConfig
from gristmill.core.errors import ConfigError, InputError
from gristmill.core.http import Fault, NoAnswerError, Request, StoppedError, exchange
from gristmill.variants.answers import Reply, listed_models, read_reply

COMPLETIONS = "/chat/completions"
MODELS = "/models"

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
MOST_AT_ONCE = 1024
WARMEST = 2.0
LEAST_ANSWER_TOKENS = 4096
"""For a short text too: some models think aloud before they answer."""
BYTES_PER_TOKEN = 3
"""Which tokenizer a model has is not known; of code most have three to four bytes in a token."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Endpoint(url="http://localhost:8000/v1", model="qwen3-coder")"""

    url: str
    """With or without `/chat/completions` at its end."""
    model: str | None = None
    """None: the first that the server lists."""
    key_variable: str = "GRISTMILL_REWRITE_KEY"
    """The environment variable that holds the key; no key is sent where it is not set."""
    timeout_seconds: float = 300.0
    """For all of a request, from the first byte to the last."""
    num_retries: int = 4
    concurrency: int = 8
    max_tokens: int | None = None
    """Of an answer, at most; None: twice those of the text, LEAST_ANSWER_TOKENS at least."""
    context_tokens: int | None = None
    """What the model takes, question and answer together; None: not known."""
    temperature: float = 0.7

    @classmethod
    def of(cls, config: RewriteConfig) -> "Endpoint":
        assert config.endpoint is not None, "the configuration requires one"
        return cls(
            url=config.endpoint,
            model=config.model,
            timeout_seconds=config.timeout_seconds,
            num_retries=config.retries,
            concurrency=config.concurrency,
            max_tokens=config.max_tokens,
            context_tokens=config.context_tokens,
        )

    def __post_init__(self) -> None:
        _refuse_odd_address(self.url)
        _refuse_outside("timeout_seconds", self.timeout_seconds, 0.01, 86_400)
        _refuse_outside("num_retries", self.num_retries, 0, 100)
        _refuse_outside("concurrency", self.concurrency, 1, MOST_AT_ONCE)
        _refuse_outside("max_tokens", 1 if self.max_tokens is None else self.max_tokens, 1, 1 << 30)
        _refuse_outside("context_tokens", 1 if self.context_tokens is None else self.context_tokens, 1, 1 << 30)
        _refuse_outside("temperature", self.temperature, 0, WARMEST)
        if not VARIABLE.fullmatch(self.key_variable):  # not shown: it may be the key itself
            raise ConfigError("key_variable of the rewrite endpoint must be the name of an environment variable.")
        if self.model is not None and not self.model.strip():
            raise ConfigError("the model of the rewrite endpoint is empty. Leave it out to take the server's first.")

    @property
    def base(self) -> str:
        return self.url.rstrip("/").removesuffix(COMPLETIONS).rstrip("/")

    def answer_tokens(self, prompt: str, text: bytes) -> int | None:
        """How long the answer may get; None: the context has no room for one as long as the text."""
        as_the_text = tokens_in(text)
        wanted = max(LEAST_ANSWER_TOKENS, 2 * as_the_text) if self.max_tokens is None else self.max_tokens
        if self.context_tokens is None:
            return wanted
        room = self.context_tokens - tokens_in(prompt.encode())
        return min(wanted, room) if room >= max(1, min(wanted, as_the_text)) else None

    def request(self, path: str, body: bytes | None) -> Request:
        return Request(self.base + path, self.headers(), body, self.timeout_seconds, self.key_variable)

    def headers(self) -> dict[str, str]:
        key = os.environ.get(self.key_variable, "").strip()
        if not (key.isascii() and key.isprintable()):  # http.client would show it in its error
            raise ConfigError(f"the key in ${self.key_variable} has characters that no HTTP header takes. Set it anew.")
        content = {"Accept": "application/json", "Content-Type": "application/json", "Connection": "close"}
        return {**content, "Authorization": f"Bearer {key}"} if key else content


def tokens_in(text: bytes) -> int:
    return math.ceil(len(text) / BYTES_PER_TOKEN)


def _refuse_odd_address(url: str) -> None:
    """What is refused is not shown: a password may stand anywhere in it."""
    example = "Try http://localhost:8000/v1."
    if "@" in url or "?" in url or "#" in url:
        raise ConfigError(
            "the URL of the rewrite endpoint must have no user, password, query or fragment in it; a key belongs into "
            f"an environment variable. {example}"
        )
    if not url.lower().startswith(("http://", "https://")):
        raise ConfigError(f"the URL of the rewrite endpoint must begin with http:// or https://. {example}")
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:  # `http://[::1/v1`, `http://host:port/v1`
        is_whole = False
    if not is_whole or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"the URL of the rewrite endpoint names no host and port that can be asked. {example}")


def _refuse_outside(name: str, value: float, least: float, most: float) -> None:
    if not (math.isfinite(value) and least <= value <= most):
        raise ConfigError(f"{name} of the rewrite endpoint must be from {least:g} to {most:g}, got {value:g}.")


# A request to the endpoint -> its answer: tried again after a while, and given up where nothing answers any more.

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
