"""Endpoint of the language model that rewrites texts: settings and requests.

A URL that may contain a secret is refused, so that messages can show the URL. The key is read from the environment for
each request and is not stored.
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
from gristmill.core.http import Fault, NoAnswerError, Request, StoppedError, send_request
from gristmill.variants.answers import Reply, read_model_names, read_reply

COMPLETIONS_PATH = "/chat/completions"
MODELS_PATH = "/models"

VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
MAX_CONCURRENCY = 1024
MAX_TEMPERATURE = 2.0
MIN_ANSWER_TOKENS = 4096
"""Minimum default of `max_tokens`. Even a short text needs this many, because some models reason before they answer."""
BYTES_PER_TOKEN = 3
"""Estimated length of a token. The model's tokenizer is unknown, but most tokens of code have three to four bytes."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a server with OpenAI's chat protocol.

    `Endpoint(url="http://localhost:8000/v1", model="qwen3-coder")`
    """

    url: str
    """Base URL. It may end with `/chat/completions`."""
    model: str | None = None
    """Name of the model. None for the first model that the server lists."""
    key_variable: str = "GRISTMILL_REWRITE_KEY"
    """Environment variable that contains the key. If it is not set, no key is sent."""
    timeout_seconds: float = 300.0
    """Time limit in seconds for the complete exchange, from connecting to the last byte of the answer."""
    num_retries: int = 4
    concurrency: int = 8
    max_tokens: int | None = None
    """Maximum number of tokens in an answer. None for twice as many as in the text, but at least MIN_ANSWER_TOKENS."""
    context_tokens: int | None = None
    """Maximum number of tokens in a prompt and its answer together. None if unknown."""
    temperature: float = 0.7

    @classmethod
    def from_config(cls, config: RewriteConfig) -> "Endpoint":
        assert config.endpoint is not None, "the configuration requires an endpoint"
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
        _check_url(self.url)
        _check_range("timeout_seconds", self.timeout_seconds, 0.01, 86_400)
        _check_range("num_retries", self.num_retries, 0, 100)
        _check_range("concurrency", self.concurrency, 1, MAX_CONCURRENCY)
        _check_range("max_tokens", 1 if self.max_tokens is None else self.max_tokens, 1, 1 << 30)
        _check_range("context_tokens", 1 if self.context_tokens is None else self.context_tokens, 1, 1 << 30)
        _check_range("temperature", self.temperature, 0, MAX_TEMPERATURE)
        if not VARIABLE_NAME.fullmatch(self.key_variable):  # the value is not shown, because it may be the key itself
            raise ConfigError("key_variable of the rewrite endpoint must be the name of an environment variable.")
        if self.model is not None and not self.model.strip():
            raise ConfigError(
                "the model of the rewrite endpoint is empty. Omit it to use the first model that the server lists."
            )

    @property
    def base_url(self) -> str:
        return self.url.rstrip("/").removesuffix(COMPLETIONS_PATH).rstrip("/")

    def max_answer_tokens(self, prompt: str, text: bytes) -> int | None:
        """Return the maximum number of tokens in an answer, or None if an answer as long as the text would not fit."""
        text_tokens = estimate_tokens(text)
        limit = max(MIN_ANSWER_TOKENS, 2 * text_tokens) if self.max_tokens is None else self.max_tokens
        if self.context_tokens is None:
            return limit
        available = self.context_tokens - estimate_tokens(prompt.encode())
        return min(limit, available) if available >= max(1, min(limit, text_tokens)) else None

    def request(self, path: str, body: bytes | None) -> Request:
        return Request(self.base_url + path, self.headers(), body, self.timeout_seconds, self.key_variable)

    def headers(self) -> dict[str, str]:
        key = os.environ.get(self.key_variable, "").strip()
        if not (key.isascii() and key.isprintable()):  # http.client would show the key in its error
            raise ConfigError(
                f"the key in ${self.key_variable} has characters that HTTP headers do not allow. Correct the key."
            )
        content = {"Accept": "application/json", "Content-Type": "application/json", "Connection": "close"}
        return {**content, "Authorization": f"Bearer {key}"} if key else content


def estimate_tokens(text: bytes) -> int:
    return math.ceil(len(text) / BYTES_PER_TOKEN)


def _check_url(url: str) -> None:
    """Raise ConfigError if the URL cannot be used. The message does not show the URL, which may contain a password."""
    example = "Try http://localhost:8000/v1."
    if "@" in url or "?" in url or "#" in url:
        raise ConfigError(
            "the URL of the rewrite endpoint must not contain a user, password, query or fragment. Set the key "
            f"in an environment variable. {example}"
        )
    if not url.lower().startswith(("http://", "https://")):
        raise ConfigError(f"the URL of the rewrite endpoint must begin with http:// or https://. {example}")
    try:
        parts = urlsplit(url)
        is_valid = bool(parts.hostname) and parts.port != 0
    except ValueError:  # `http://[::1/v1`, `http://host:port/v1`
        is_valid = False
    if not is_valid or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"the URL of the rewrite endpoint has no valid host and port. {example}")


def _check_range(name: str, value: float, minimum: float, maximum: float) -> None:
    if not (math.isfinite(value) and minimum <= value <= maximum):
        raise ConfigError(f"{name} of the rewrite endpoint must be from {minimum:g} to {maximum:g}, got {value:g}.")


# Requests are retried after a delay. After too many consecutive failures, the client stops.

FIRST_WAIT_SECONDS = 0.5
MAX_WAIT_SECONDS = 30.0
MAX_RETRY_AFTER_SECONDS = 120.0
MAX_CONSECUTIVE_FAILURES = 20
RESUME_HINT = "Completed answers are kept: run the same command again to resume"


class EndpointClient:
    """Client of an endpoint, for use by several threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._num_consecutive_failures = 0
        self._last_error: str | None = None

    def stop(self) -> None:
        """Stop all requests. Requests in progress end within a moment."""
        self._stop.set()

    def ask(self, request: bytes) -> Reply:
        """Send a request and return the reply.

        Raises NoAnswerError if there is no valid reply. Raises InputError after MAX_CONSECUTIVE_FAILURES requests in a
        row without a valid reply.
        """
        try:
            reply = read_reply(self._send_with_retries(COMPLETIONS_PATH, request))
        except NoAnswerError as error:
            self._count_failure(error)
            raise
        except StoppedError:
            raise self._stop_error() from None
        with self._lock:
            self._num_consecutive_failures = 0
        return reply

    def fetch_first_model(self) -> str:
        try:
            return read_model_names(self._send_with_retries(MODELS_PATH, None))[0]
        except NoAnswerError as error:
            raise InputError(
                f"the rewrite endpoint {self._endpoint.base_url} does not list its models: {error.reason}. "
                f"Start the server, or set the model. {RESUME_HINT}."
            ) from None

    def _send_with_retries(self, path: str, body: bytes | None) -> bytes:
        for attempt in range(self._endpoint.num_retries):
            try:
                return send_request(self._endpoint.request(path, body), self._stop)
            except NoAnswerError as error:
                if error.fault is not Fault.TRANSIENT:
                    raise
                delay_seconds = retry_delay_seconds(attempt, error.retry_after)
            if self._stop.wait(delay_seconds):
                raise StoppedError
        return send_request(self._endpoint.request(path, body), self._stop)

    def _count_failure(self, error: NoAnswerError) -> None:
        if error.fault is Fault.TEXT_SPECIFIC:
            return
        with self._lock:
            self._num_consecutive_failures += 1
            if self._num_consecutive_failures < MAX_CONSECUTIVE_FAILURES:
                return
            self._last_error = self._last_error or error.reason
        self.stop()
        raise self._stop_error() from None

    def _stop_error(self) -> Exception:
        if self._last_error is None:
            return StoppedError()
        return InputError(
            f"the rewrite endpoint {self._endpoint.base_url} gave no answer to {MAX_CONSECUTIVE_FAILURES} texts in a "
            f"row. Last error: {self._last_error}. Check that the server runs and has capacity. {RESUME_HINT}."
        )


def encode_request(endpoint: Endpoint, model: str, prompt: str, seed: int, max_tokens: int) -> bytes:
    """Return a request as JSON.

    The request contains only the values that determine the answer, because the request is also its key in the cache.
    """
    request = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": float(endpoint.temperature),
        "seed": seed & 0x7FFFFFFF,  # some servers store the seed in 32 bits
        "max_tokens": max_tokens,
        "stream": False,
    }
    return msgspec.json.encode(request)


def retry_delay_seconds(attempt: int, retry_after: str | None) -> float:
    """Return the delay before the next attempt.

    `retry_after` is the value of the Retry-After header, such as `120` or `Fri, 31 Dec 1999 23:59:59 GMT`. An invalid
    value is ignored.
    """
    requested = _parse_retry_after(retry_after) if retry_after else None
    if requested is None:
        return min(FIRST_WAIT_SECONDS * 2.0**attempt, MAX_WAIT_SECONDS)
    return min(max(requested, 0.0), MAX_RETRY_AFTER_SECONDS)


def _parse_retry_after(retry_after: str) -> float | None:
    try:
        return float(int(retry_after))
    except (ValueError, OverflowError):
        pass
    try:
        until = parsedate_to_datetime(retry_after)
    except (ValueError, OverflowError):
        return None
    return (until if until.tzinfo else until.replace(tzinfo=UTC)).timestamp() - time.time()
