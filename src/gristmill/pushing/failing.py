"""What goes wrong between here and the Hub -> one line that says what to do, and never a token."""

import json
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gristmill.errors import GristmillError

LONGEST_REASON = 200
TOKEN = re.compile(r"hf_\w{4,}|Bearer \S+", re.IGNORECASE)
QUERY = re.compile(r"\?\S+")
"""Of an address: storage is signed in there."""
AGAIN = "Push again: what is there already is not sent twice."

ADVICE = {
    400: "Is README.md's head in order, and --revision a branch?",
    401: "The token is not valid: run 'hf auth login', or set HF_TOKEN to one that may write.",
    402: "The Hub wants it paid for: look at the storage of your account.",
    403: "The token may not write there: take one that may, and a name of yours or of an organisation of yours.",
    404: "It is not there, or not for you: check the name, --revision, and what your token may do.",
    409: f"Somebody else was at it just then. {AGAIN}",
    412: f"Somebody else has changed it in the meantime. {AGAIN}",
    413: "That is too much for the Hub at once: try fewer formats (--format).",
    429: f"Too many requests: wait a few minutes. {AGAIN}",
}


@contextmanager
def as_ours(doing: str, kind: type[GristmillError]) -> Iterator[None]:
    """Whatever the library raises, or what it uses: which classes these are differs between its versions."""
    try:
        yield
    except GristmillError:
        raise
    except Exception as error:  # noqa: BLE001 - a foreign library that speaks to a foreign server
        raise kind(f"{doing} failed: {_told(error)}") from None


def _told(error: BaseException) -> str:
    chain = list(_chain(error))
    if any(type(one).__name__ == "OfflineModeIsEnabled" for one in chain):
        return "HF_HUB_OFFLINE forbids it. Unset it."
    for one in chain:
        status = getattr(getattr(one, "response", None), "status_code", None)
        if isinstance(status, int):
            said = _clean(str(getattr(one, "server_message", None) or ""))
            advice = ADVICE.get(status, f"The Hub has trouble of its own: wait. {AGAIN}" if status >= 500 else AGAIN)  # noqa: PLR2004
            return f"it answers {status}{f' ({said})' if said else ''}. {advice}"
    if isinstance(chain[0], json.JSONDecodeError):
        return "it does not answer as the Hub does. Is HF_ENDPOINT right?"
    if isinstance(chain[0], ValueError):
        return f"{_clean(str(chain[0])).rstrip('.')}."
    return f"{_clean(str(chain[-1])) or type(chain[-1]).__name__}. Check the network. {AGAIN}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def _clean(text: str) -> str:
    """In one line, without what nobody may see."""
    token = _token()
    line = QUERY.sub("", " ".join((text.replace(token, "…") if token else text).split()))
    line = TOKEN.sub("…", line)
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}…"


def _token() -> str | None:
    from huggingface_hub import get_token  # noqa: PLC0415 - slow to import, and not always there

    with suppress(Exception):  # asking for it may be what went wrong
        return get_token()
    return None


@contextmanager
def silenced() -> Iterator[None]:
    """No bars, log lines or warnings of huggingface_hub: what there is to say, we say."""
    from huggingface_hub.utils.tqdm import (  # noqa: PLC0415
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    logger = logging.getLogger("huggingface_hub")
    level, had_bars = logger.level, not are_progress_bars_disabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.CRITICAL)
        disable_progress_bars()
        try:
            yield
        finally:
            logger.setLevel(level)
            if had_bars:
                enable_progress_bars()
