"""Rewriting by a model, tested with a local server that answers well, badly, late or never."""

import datetime as dt
import ipaddress
import random
import re
import ssl
import threading
import time
from email.utils import format_datetime

import pytest

from gristmill.core.errors import ConfigError, InputError, OutputError
from gristmill.core.records import WhyNoVariant
from gristmill.variants import endpoint as endpoint_module
from gristmill.variants.answers import UnusableAnswerError, extract_code, find_refusal_reason, match_line_ends
from gristmill.variants.endpoint import MAX_CONSECUTIVE_FAILURES, Endpoint, retry_delay_seconds
from gristmill.variants.grammars import GRAMMARS, parse
from gristmill.variants.rewrite import TASKS_PER_THREAD, Failure, Rewriter, RewriteTask, Rewritten, find_signatures
from support import chat_server as acts
from support.chat_server import CHILD, KEY, PARENT, ChatServer, answers_with, fails, sends


@pytest.fixture(autouse=True)
def assert_no_threads_remain():
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("rewrite")]
    assert left == []


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("GRISTMILL_REWRITE_KEY", KEY)


@pytest.fixture
def short_waits(monkeypatch):
    monkeypatch.setattr(endpoint_module, "FIRST_WAIT_SECONDS", 0.05)


def endpoint(server, **settings):
    return Endpoint(**{"url": server.url, "model": "m", "timeout_seconds": 5.0, "num_retries": 0, **settings})


def task(name, **fields):
    return RewriteTask(**{
        "key": name, "text": PARENT.format(name=name).encode(), "language": "python", "seed": 7, "way": "paraphrase", **fields
    })  # fmt: skip


def rewritten(server, tasks, cache, **settings):
    with Rewriter(endpoint(server, **settings), cache) as rewriter:
        return list(rewriter.rewrite_all(tasks))


def outcome_of(act, tmp_path, **settings):
    with ChatServer({"a": [act]}) as server:
        ((_, outcome),) = rewritten(server, [task("a")], tmp_path / "cache", **settings)
    return outcome


def count_files(folder):
    return sum(path.is_file() for path in folder.rglob("*"))


# Requests and answers.


def test_paraphrase_is_one_request_in_the_expected_format(tmp_path):
    with ChatServer() as server:
        results = rewritten(server, [task("a", seed=(1 << 40) + 5)], tmp_path, temperature=0.5, max_tokens=99)
    assert results == [(task("a", seed=(1 << 40) + 5), Rewritten(CHILD.format(name="a").encode()))]
    ((path, headers, asked),) = server.requests
    assert path == "/v1/chat/completions"
    assert headers["Content-Type"] == "application/json"
    assert (asked["model"], asked["temperature"], asked["max_tokens"], asked["seed"]) == ("m", 0.5, 99, 5)
    assert PARENT.format(name="a") in asked["messages"][0]["content"]
    assert asked["stream"] is False


def long_task(name, num_bytes):
    text = PARENT.format(name=name)
    return task(name, text=(text + "# " + "x" * (num_bytes - len(text) - 3) + "\n").encode())


def test_answer_limit_is_twice_the_text_within_the_context(tmp_path):
    """A text is not sent if the context has no room for an answer of the same length."""
    tasks = [task("a"), long_task("b", 30_000)]
    with ChatServer() as server:
        rewritten(server, tasks, tmp_path / "free")
        assert sorted(asked["max_tokens"] for _, _, asked in server.requests) == [4096, 20_000]
    with ChatServer() as server:
        results = rewritten(server, tasks, tmp_path / "small", context_tokens=15_000)
        assert [asked["max_tokens"] for _, _, asked in server.requests] == [4096]
    assert results[1][1].why is WhyNoVariant.TEXT_TOO_LONG
    assert re.fullmatch(
        r"a prompt of about 10,\d+ tokens and an answer of 10,000 do not fit into the context of 15,000 tokens",
        results[1][1].reason,
    )
    with ChatServer() as server:
        rewritten(server, tasks, tmp_path / "large", context_tokens=24_000)
        (reduced_limit,) = [asked["max_tokens"] for _, _, asked in server.requests if asked["max_tokens"] > 4096]
    assert 13_000 < reduced_limit < 14_000
    with ChatServer() as server:
        rewritten(server, tasks, tmp_path / "set", context_tokens=15_000, max_tokens=500)
        assert [asked["max_tokens"] for _, _, asked in server.requests] == [500, 500]


def test_description_that_leaves_no_room_for_the_code_is_not_sent(tmp_path):
    with ChatServer({"a": [answers_with("A function area_a. " * 400)]}) as server:
        back = task("a", way="back_translation")
        ((_, outcome),) = rewritten(server, [back], tmp_path, context_tokens=2000)
        assert server.num_asked == 1
    assert outcome.why is WhyNoVariant.TEXT_TOO_LONG


def test_back_translation_sends_no_code_with_the_description(tmp_path):
    with ChatServer() as server:
        ((_, outcome),) = rewritten(server, [task("a", way="back_translation")], tmp_path)
    assert outcome == Rewritten(CHILD.format(name="a").encode())
    describe, implement = server.prompts()
    assert "result = width * height" in describe
    assert "A function area_a that multiplies." in implement
    assert "def area_a(width, height):" in implement
    assert "result = width * height" not in implement


def test_answer_without_a_fence_is_used_completely(tmp_path):
    assert outcome_of(answers_with(acts.unfenced("a")), tmp_path) == Rewritten(CHILD.format(name="a").encode())


@pytest.mark.parametrize("suffix", ["", "/", "/chat/completions", "/chat/completions/"])
def test_url_may_include_the_completions_path(tmp_path, suffix):
    with ChatServer() as server:
        rewritten(server, [task("a")], tmp_path, url=server.url + suffix, model=None)
    assert [path for path, _, _ in server.requests] == ["/v1/models", "/v1/chat/completions"]


def test_first_model_is_fetched_once_if_none_is_set(tmp_path):
    with ChatServer() as server, Rewriter(endpoint(server, model=None), tmp_path) as rewriter:
        list(rewriter.rewrite_all(task(f"n{number}") for number in range(10)))
        assert rewriter.model == "first"
    assert {asked["model"] for _, _, asked in server.requests if asked} == {"first"}
    assert len(server.requests) == 11


@pytest.mark.parametrize(
    "act", [fails(401), sends(b"{}"), sends(b'{"data": []}'), sends(b'{"data": [{"id": 3}]}'), sends(b"<html>"), sends(b'{"data": [{"id": "a\\nb"}]}')]
)  # fmt: skip
def test_server_without_a_valid_model_list_is_an_input_error(tmp_path, act):
    with ChatServer({"models": [act]}) as server, pytest.raises(InputError, match="set the model") as caught:
        rewritten(server, [task("a")], tmp_path, model=None)
    assert KEY not in str(caught.value)
    assert server.num_asked == 0


def test_results_keep_the_order_of_tasks(tmp_path):
    rng = random.Random(3)

    def answer_after_a_delay(chat, name):
        time.sleep(rng.random() / 20)
        acts.good(chat, name)

    names = [f"n{number}" for number in range(60)]
    with ChatServer({name: [answer_after_a_delay] for name in names}) as server:
        results = rewritten(server, map(task, names), tmp_path, concurrency=8)
    assert [done.key for done, _ in results] == names
    assert [outcome.text for _, outcome in results] == [CHILD.format(name=name).encode() for name in names]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_number_of_parallel_requests_is_limited(tmp_path, concurrency):
    with ChatServer() as server:
        server.seconds = 0.05
        rewritten(server, [task(f"n{number}") for number in range(12)], tmp_path, concurrency=concurrency)
    assert server.max_active == concurrency


def test_tasks_are_consumed_only_slightly_ahead(tmp_path):
    taken = []

    def tasks():
        for number in range(500):
            taken.append(number)
            yield task(f"n{number}")

    with ChatServer() as server, Rewriter(endpoint(server, concurrency=2), tmp_path) as rewriter:
        results = rewriter.rewrite_all(tasks())
        for number in range(3):
            assert next(results)[0].key == f"n{number}"
        assert len(taken) <= 3 + TASKS_PER_THREAD * 2
        results.close()
    assert server.num_asked <= len(taken)


def test_text_that_cannot_be_checked_is_not_sent(tmp_path):
    with ChatServer() as server:
        results = rewritten(server, [task("a", language="cobol"), task("b", text=b"area_b \xff")], tmp_path)
    assert {outcome.why for _, outcome in results} == {WhyNoVariant.ANSWER_REFUSED}
    assert "cobol" in results[0][1].reason
    assert "UTF-8" in results[1][1].reason
    assert server.requests == []


# Cache.


def test_rerun_sends_no_requests(tmp_path):
    tasks = [task(f"n{number}", way=("paraphrase", "back_translation")[number % 2]) for number in range(10)]
    tasks += [task("empty"), task("cut")]
    with ChatServer({"empty": [answers_with("")], "cut": [answers_with("x", "length")]}) as server:
        first = rewritten(server, tasks, tmp_path)
        num_asked = server.num_asked
        assert num_asked == 5 + 2 * 5 + 2
        assert rewritten(server, tasks, tmp_path) == first
        assert server.num_asked == num_asked
    # Cached results need no server and do not depend on the address of the server.
    assert rewritten(server, tasks, tmp_path, url="http://127.0.0.1:9/v1") == first


@pytest.mark.parametrize(
    "change", [{"seed": 8}, {"way": "back_translation"}, {"language": "c"}, {"text": b"area_a = 1\n"}], ids=str
)
def test_changed_task_is_requested_again(tmp_path, change):
    with ChatServer() as server:
        rewritten(server, [task("a")], tmp_path)
        rewritten(server, [task("a", **change)], tmp_path)
    assert server.num_asked == (3 if "way" in change else 2)


@pytest.mark.parametrize("change", [{"model": "other"}, {"temperature": 0.1}, {"max_tokens": 77}], ids=str)
def test_changed_settings_are_requested_again(tmp_path, change):
    with ChatServer() as server:
        rewritten(server, [task("a")], tmp_path)
        rewritten(server, [task("a")], tmp_path, **change)
    assert server.num_asked == 2


def test_identical_tasks_are_requested_once(tmp_path):
    with ChatServer() as server:
        server.seconds = 0.05
        results = rewritten(server, [task("a", key=number) for number in range(6)], tmp_path)
    assert [done.key for done, _ in results] == list(range(6))
    assert server.num_asked == 1


@pytest.mark.parametrize("damage", [lambda old: old[:-3], lambda _: b"", lambda old: old + b" ", lambda old: old.replace(b"height", b"weight"), lambda _: b"\xff" * 99])  # fmt: skip
def test_damaged_answer_is_requested_again_and_repaired(tmp_path, damage):
    with ChatServer() as server:
        first = rewritten(server, [task("a")], tmp_path)
        (cached,) = [path for path in tmp_path.rglob("*") if path.is_file()]
        original = cached.read_bytes()
        cached.write_bytes(damage(original))
        assert rewritten(server, [task("a")], tmp_path) == first
        assert server.num_asked == 2
        assert cached.read_bytes() == original


def test_server_failures_are_not_cached(tmp_path):
    names = {"down": fails(500), "broken": sends(b"{"), "long": fails(413), "closed": acts.hangs_up}
    with ChatServer({name: [act] for name, act in names.items()}) as server:
        first = rewritten(server, map(task, names), tmp_path)
        assert all(isinstance(outcome, Failure) and outcome.why is WhyNoVariant.NO_ANSWER for _, outcome in first)
        assert count_files(tmp_path) == 0
        again = rewritten(server, map(task, names), tmp_path)
    assert all(isinstance(outcome, Rewritten) for _, outcome in again)


def test_unusable_cache_folder_is_reported_before_any_request(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with ChatServer() as server, pytest.raises(OutputError, match="file"):
        rewritten(server, [task("a")], tmp_path / "file/cache")
    assert server.requests == []


# Unusable answers.


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (answers_with(""), "empty"),
        (answers_with(" \n "), "empty"),
        (answers_with(None), "empty"),
        (answers_with("```python\n\n```"), "empty"),
        (answers_with("```python\nx = 1\n"), "never closed"),
        (answers_with(acts.fenced("a"), "length"), "cut off"),
        (answers_with("x = '\0'"), "NUL"),
    ],
)
def test_unusable_answer_is_cached(tmp_path, act, reason):
    outcome = outcome_of(act, tmp_path)
    assert outcome.why is WhyNoVariant.ANSWER_REFUSED
    assert reason in outcome.reason
    assert count_files(tmp_path / "cache") == 1


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (sends(b'{"choices": ['), "not JSON"),
        (sends(b""), "not JSON"),
        (sends(b"[" * 100_000), "no"),
        (sends(b'{"choices": []}'), "no choices"),
        (sends(b"{}"), "not a chat completion"),
        (sends(b"[]"), "not a chat completion"),
        (sends(b'{"choices": [{"message": {"content": 3}}]}'), "not a chat completion"),
        (sends(b'{"choices": [{"message": "x"}]}'), "not a chat completion"),
        (sends(b'{"choices": {"message": "x"}}'), "not a chat completion"),
        (sends(b'{"choices": [{"message": {"content": "\xff"}}]}'), "not JSON"),
        (sends(b'{"choices": [{"message": {"content": "\\ud800"}}]}'), "not JSON"),
        (sends(b'{"choices": [{"message": {"content": "\\udc80 and more"}}]}'), "not JSON"),
        (sends(b" <html><body>area_a</body></html>", kind="text/html"), "web page"),
        (sends(b"", 302, Location="http://127.0.0.1:9/elsewhere"), "redirect, and redirects are not followed"),
        (sends(b"", 308, Location="/v2/chat/completions"), "redirect, and redirects are not followed"),
        (sends(b"", 204), "HTTP 204"),
        (fails(401), "check the key in $GRISTMILL_REWRITE_KEY"),
        (fails(404), "check the URL"),
        (fails(400), "HTTP 400 Bad Request"),
        (fails(499), "HTTP 499"),
    ],
)
def test_permanent_failures_are_not_retried(tmp_path, act, reason):
    with ChatServer({"a": [act]}) as server:
        ((_, outcome),) = rewritten(server, [task("a")], tmp_path, num_retries=3)
    assert outcome.why is WhyNoVariant.NO_ANSWER
    assert reason in outcome.reason
    assert len(server.requests) == 1
    assert KEY not in outcome.reason
    assert "area_a" not in outcome.reason


def test_endless_body_is_abandoned_after_a_few_megabytes(tmp_path):
    with ChatServer({"a": [acts.never_ends]}) as server:
        ((_, outcome),) = rewritten(server, [task("a")], tmp_path, timeout_seconds=20)
    assert server.num_sent < 64 << 20  # including socket buffers
    assert outcome == Failure(WhyNoVariant.NO_ANSWER, "the answer is larger than 8 MiB")


# Retries.


@pytest.mark.parametrize("act", [fails(500), fails(503), fails(408), fails(409), fails(425), fails(429), acts.hangs_up, acts.breaks_off, acts.breaks_off_in_a_chunk, acts.sends_other_protocol])  # fmt: skip
def test_transient_failures_are_retried(tmp_path, short_waits, act):
    with ChatServer({"a": [act]}) as server:
        ((_, outcome),) = rewritten(server, [task("a")], tmp_path, num_retries=1)
    assert outcome == Rewritten(CHILD.format(name="a").encode())
    assert server.num_asked == 2


def test_number_of_retries_is_limited(tmp_path):
    with ChatServer({"a": [fails(500, Retry_After="0")] * 9}) as server:
        ((_, outcome),) = rewritten(server, [task("a")], tmp_path, num_retries=3)
    assert outcome == Failure(WhyNoVariant.NO_ANSWER, "HTTP 500 Internal Server Error")
    assert server.num_asked == 4


def test_retry_after_header_is_respected(tmp_path, short_waits):
    """`delayed` must wait 100 seconds. Meanwhile, `retried` is sent four times, with shorter delays."""
    script = {"delayed": [fails(429, Retry_After="100")], "retried": [fails(500)] * 3}
    with ChatServer(script) as server, Rewriter(endpoint(server, num_retries=3), tmp_path) as rewriter:
        results = rewriter.rewrite_all([task("retried"), task("delayed")])
        assert isinstance(next(results)[1], Rewritten)
        assert (server.num_asked_about("retried"), server.num_asked_about("delayed")) == (4, 1)


def test_retry_delays_grow_up_to_a_limit():
    assert [retry_delay_seconds(attempt, None) for attempt in range(4)] == [0.5, 1, 2, 4]
    assert retry_delay_seconds(90, None) == 30
    assert retry_delay_seconds(0, "7") == 7
    assert retry_delay_seconds(0, "-7") == 0
    assert retry_delay_seconds(0, "9" * 30) == 120
    assert retry_delay_seconds(2, "soon") == retry_delay_seconds(2, "inf") == retry_delay_seconds(2, "9" * 9999) == 2
    now = dt.datetime.now(dt.UTC)
    assert 17 < retry_delay_seconds(0, format_datetime(now + dt.timedelta(seconds=20), usegmt=True)) <= 20
    assert retry_delay_seconds(0, format_datetime(now + dt.timedelta(days=2), usegmt=True)) == 120
    assert retry_delay_seconds(0, "Fri, 31 Dec 1999 23:59:59 GMT") == 0


@pytest.mark.parametrize("act", [acts.is_silent, acts.drips, acts.drips_headers])
def test_slow_server_is_abandoned_at_the_deadline(tmp_path, act):
    """Each answer would take at least ten seconds, so the server does not finish any answer."""
    with ChatServer({"a": [act]}) as server:
        ((_, outcome),) = rewritten(server, [task("a")], tmp_path, timeout_seconds=0.6)
        assert server.num_acted == 0
    assert outcome == Failure(WhyNoVariant.NO_ANSWER, "no complete answer within 0.6 seconds")


def test_slow_answer_within_the_deadline_is_used(tmp_path):
    outcome = outcome_of(lambda chat, name: acts.drips(chat, name, pause=0.002), tmp_path)
    assert outcome == Rewritten(CHILD.format(name="a").encode())


def test_server_that_reads_nothing_is_abandoned_at_the_deadline(tmp_path):
    import socket

    with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        big = task("a", text=b"x = 1\n" * 2_000_000)
        settings = Endpoint(url=url, model="m", timeout_seconds=0.6, num_retries=0)
        with Rewriter(settings, tmp_path) as rewriter:
            ((_, outcome),) = rewriter.rewrite_all([big])
    assert outcome.reason == "no complete answer within 0.6 seconds"


def test_early_exit_does_not_wait_for_a_slow_server(tmp_path):
    with ChatServer({"a": [acts.is_silent], "b": [fails(500, Retry_After="100")]}) as server:
        with (
            pytest.raises(KeyboardInterrupt),
            Rewriter(endpoint(server, timeout_seconds=100, num_retries=5), tmp_path) as rewriter,
        ):
            results = rewriter.rewrite_all([task("c"), task("a"), task("b")])
            next(results)
            raise KeyboardInterrupt
        assert server.num_asked_about("a") <= 1  # not requested again
        assert server.num_asked_about("b") <= 1
        assert server.num_acted <= 2, "the silent answer must not have ended"


# Giving up.


@pytest.mark.parametrize("act", [acts.hangs_up, fails(500), fails(401), sends(b"<html>")])
def test_server_that_never_answers_ends_the_run(tmp_path, act):
    names = [f"n{number}" for number in range(200)]
    seen = []
    with ChatServer({name: [act] for name in names}) as server:
        with (
            pytest.raises(InputError, match=f"no answer to {MAX_CONSECUTIVE_FAILURES} texts") as caught,
            Rewriter(endpoint(server, concurrency=4), tmp_path) as rewriter,
        ):
            seen.extend(rewriter.rewrite_all(map(task, names)))
        assert MAX_CONSECUTIVE_FAILURES <= server.num_asked <= MAX_CONSECUTIVE_FAILURES + 4
    assert len(seen) <= MAX_CONSECUTIVE_FAILURES
    message = str(caught.value)
    assert server.url in message
    assert "run the same command again" in message
    assert "\n" not in message
    assert KEY not in message
    assert "area_" not in message


def test_giving_up_does_not_wait_for_pending_retries(tmp_path):
    names = [f"n{number}" for number in range(60)]
    script = {name: [fails(401)] for name in names} | {"n0": [fails(429, Retry_After="100")]}
    with ChatServer(script) as server:
        with pytest.raises(InputError, match="check the key"):
            rewritten(server, map(task, names), tmp_path, num_retries=1)
        assert server.num_asked_about("n0") == 1


def test_closed_port_is_named_in_the_error(tmp_path):
    settings = Endpoint(url="http://127.0.0.1:9/v1", model="m", num_retries=0)
    with pytest.raises(InputError, match=r"127\.0\.0\.1:9/v1 .*connection refused"), Rewriter(settings, tmp_path) as r:
        list(r.rewrite_all(task(f"n{number}") for number in range(100)))


def test_failures_between_answers_do_not_end_the_run(tmp_path):
    names = [f"n{number}" for number in range(60)]
    with ChatServer({name: [fails(500)] for name in names if int(name[1:]) % 10}) as server:
        results = rewritten(server, map(task, names), tmp_path, concurrency=1)
    assert sum(isinstance(outcome, Rewritten) for _, outcome in results) == 6


def test_texts_that_are_too_long_do_not_end_the_run(tmp_path):
    names = [f"n{number}" for number in range(2 * MAX_CONSECUTIVE_FAILURES)]
    with ChatServer({name: [fails(400)] for name in names}) as server:
        results = rewritten(server, map(task, names), tmp_path)
    assert {outcome for _, outcome in results} == {Failure(WhyNoVariant.NO_ANSWER, "HTTP 400 Bad Request")}


def test_aborted_run_resumes_from_its_answers(tmp_path):
    names = [f"n{number}" for number in range(60)]
    with ChatServer({name: [acts.hangs_up] for name in names[30:]}) as server:
        with pytest.raises(InputError):
            rewritten(server, map(task, names), tmp_path, concurrency=2)
        assert count_files(tmp_path) == 30
        server.script.clear()
        num_asked = server.num_asked
        results = rewritten(server, map(task, names), tmp_path)
        assert server.num_asked == num_asked + 30
    assert all(isinstance(outcome, Rewritten) for _, outcome in results)


# Key.


def test_key_is_only_in_its_header(tmp_path):
    with ChatServer({"b": [fails(500)]}) as server:
        results = rewritten(server, [task("a"), task("b"), task("c", way="back_translation")], tmp_path, model=None)
    assert {headers["Authorization"] for _, headers, _ in server.requests} == {f"Bearer {KEY}"}
    assert len(server.requests) == 5
    assert KEY not in repr(server.prompts()) + repr(results) + repr(endpoint(server))
    cached = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(cached) == 3
    assert not any(KEY.encode() in path.read_bytes() or KEY in str(path) for path in cached)


def test_no_header_is_sent_without_a_key(tmp_path, monkeypatch):
    monkeypatch.delenv("GRISTMILL_REWRITE_KEY")
    with ChatServer() as server:
        rewritten(server, [task("a")], tmp_path)
    assert "Authorization" not in server.requests[0][1]


def test_key_is_read_from_the_configured_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("OTHER_KEY", " other\n")
    with ChatServer() as server:
        rewritten(server, [task("a")], tmp_path, key_variable="OTHER_KEY")
    assert server.requests[0][1]["Authorization"] == "Bearer other"


@pytest.mark.parametrize("invalid", ["se\ncret", "secr\u00e9t", "se\x1bcret"])
def test_invalid_key_is_refused_without_showing_it(tmp_path, monkeypatch, invalid):
    monkeypatch.setenv("GRISTMILL_REWRITE_KEY", invalid)
    with ChatServer() as server, pytest.raises(ConfigError, match="GRISTMILL_REWRITE_KEY") as caught:
        rewritten(server, [task("a")], tmp_path)
    assert invalid not in str(caught.value)
    assert "cr" not in str(caught.value)
    assert server.requests == []


@pytest.mark.parametrize("variable", [KEY, "", "A=B", "A\n"])
def test_key_instead_of_its_variable_is_refused_without_showing_it(variable):
    with pytest.raises(ConfigError, match="key_variable") as caught:
        Endpoint(url="http://localhost:8000/v1", key_variable=variable)
    assert KEY not in str(caught.value)


def test_nothing_is_logged(tmp_path, caplog, capfd):
    caplog.set_level(0)
    with ChatServer({"a": [fails(500)], "b": [acts.hangs_up]}) as server:
        rewritten(server, [task("a"), task("b"), task("c")], tmp_path, num_retries=1)
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


# Settings.


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:8000/v1", "begin with http"),
        ("ftp://host/v1", "begin with http"),
        ("", "begin with http"),
        ("http://", "no valid host"),
        ("http:///v1", "no valid host"),
        ("http://[::1/v1", "no valid host"),
        ("http://host:port/v1", "no valid host"),
        ("http://host:99999/v1", "no valid host"),
        ("http://host:0/v1", "no valid host"),
        ("http://ho st/v1", "no valid host"),
        ("http://host/v1\r\nX-Odd:1", "no valid host"),
        ("http://host/v\t1", "no valid host"),
        ("http://hôst/v1", "no valid host"),
        ("http://me:hunter2@host/v1", "not contain a user, password"),
        ("http://hunter2@host/v1", "not contain a user, password"),
        ("http://me:1/hunter2@host/v1", "not contain a user, password"),
        ("http://host/v1?key=hunter2", "not contain a user, password"),
        ("http://host/v1#hunter2", "not contain a user, password"),
    ],
)
def test_invalid_url_is_refused(url, message):
    with pytest.raises(ConfigError, match=message) as caught:
        Endpoint(url=url)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "setting",
    [{"timeout_seconds": 0}, {"timeout_seconds": float("nan")}, {"timeout_seconds": float("inf")}, {"num_retries": -1}, {"concurrency": 0}, {"max_tokens": 0}, {"context_tokens": 0}, {"temperature": -0.1}, {"temperature": 2.1}, {"model": " "}],
    ids=str,
)  # fmt: skip
def test_invalid_setting_is_named_in_the_error(setting):
    with pytest.raises(ConfigError, match=next(iter(setting))):
        Endpoint(url="http://localhost:8000/v1", **setting)


# TLS.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=1))
    signed = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
    return path


def tls(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return lambda listener: context.wrap_socket(listener, server_side=True)


def test_https_works_with_a_trusted_certificate(tmp_path, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with ChatServer({"slow": [acts.drips], "off": [acts.breaks_off]}, wrap=tls(certificate)) as server:
        results = rewritten(server, map(task, ["a", "slow", "off"]), tmp_path, timeout_seconds=1)
    outcomes = [outcome for _, outcome in results]
    assert outcomes[0] == Rewritten(CHILD.format(name="a").encode())
    assert [outcome.reason for outcome in outcomes[1:]] == [
        "no complete answer within 1 seconds",
        "the answer is incomplete",
    ]


def test_untrusted_certificate_is_refused(tmp_path, certificate):
    with ChatServer(wrap=tls(certificate)) as server:
        ((_, outcome),) = rewritten(server, [task("a")], tmp_path)
    assert "certificate is not trusted" in outcome.reason
    assert server.requests == []


def test_https_url_of_an_http_server_is_reported(tmp_path):
    with ChatServer() as server:
        ((_, outcome),) = rewritten(server, [task("a")], tmp_path, url=server.url.replace("http:", "https:"))
    assert "write http:// instead of https://" in outcome.reason


# Extracting the code.


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("x = 1", "x = 1"),
        ("x = 1\n\n", "x = 1\n\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("```python\nx = 1\n```\n", "x = 1\n"),
        ("a\r\n```python\r\nx = 1\r\n```\r\nb", "x = 1\n"),
        ("  ```py title='a b'\n  x = 1\n  ```", "  x = 1\n"),
        ("```\nfirst\n```\n```\nsecond\n```", "first\n"),
        ("````\n```\ninner\n```\n````", "```\ninner\n```\n"),
        ("```\na ``` b\n```x\n```", "a ``` b\n```x\n"),
        ("inline ```x``` only", "inline ```x``` only"),
        ("```x```", "```x```"),
        ("```\n\n x\n\n```", "\n x\n\n"),
        ("```\nx\n``````  ", "x\n"),
    ],
)
def test_first_code_block_is_extracted_unchanged(answer, code):
    assert extract_code(answer) == code


@pytest.mark.parametrize("answer", ["```", "```python", "```\nx", "````\nx\n```"])
def test_unclosed_code_block_is_refused(answer):
    with pytest.raises(UnusableAnswerError):
        extract_code(answer)


@pytest.mark.parametrize("answer", ["```x\n" * 300_000, "`" * 2_000_000, "```\n" + " " * 2_000_000, "   " * 600_000])
def test_code_is_extracted_in_linear_time(answer):
    """With quadratic code, these answers would take hours and exceed the time limit of the test."""
    with pytest.raises(UnusableAnswerError):
        extract_code(answer)
        raise UnusableAnswerError


@pytest.mark.parametrize(
    ("parent", "code", "text"),
    [
        (b"a\n", "x\ny", b"x\ny\n"),
        (b"a\n", "x\ny\n", b"x\ny\n"),
        (b"a", "x\ny\n\n", b"x\ny"),
        (b"", "x\n", b"x"),
        (b"a\r\nb\r\n", "x\ny", b"x\r\ny\r\n"),
        (b"a\r\nb", "x\r\ny\n", b"x\r\ny"),
        (b"a\r\nb\n", "x\r\ny\r\n", b"x\ny\n"),
        (b"a\n", "x\r\ny\r\n", b"x\ny\n"),
    ],
)
def test_line_ends_match_the_parent(parent, code, text):
    assert match_line_ends(parent, code) == text


def test_rewritten_text_has_the_line_ends_of_its_parent(tmp_path):
    text = PARENT.format(name="a").replace("\n", "\r\n").encode().removesuffix(b"\r\n")
    with ChatServer() as server:
        ((_, outcome),) = rewritten(server, [task("a", text=text)], tmp_path)
    assert outcome.text == CHILD.format(name="a").replace("\n", "\r\n").encode().removesuffix(b"\r\n")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"def f(b, a):\n    return a + b\n", None),
        (b"def f(a, b):\n    return a + b\n", "only in whitespace"),
        (b"def f(a,b):\r\n  return a+b", "only in whitespace"),
        (b"def f(a, b:\n    return b + a\n", "syntax error"),
        (b"Sorry, I cannot help with that file.", "syntax error"),
        (b"x = 1", "bytes"),
        (b"def f(b, a):\n    return a + b\n" * 5, "bytes"),
        (b"", "bytes"),
    ],
)
def test_answer_must_parse_and_differ(answer, reason):
    refused = find_refusal_reason(parse(b"def f(a, b):\n    return a + b\n", "python"), answer)
    assert refused is None if reason is None else reason in refused


def test_answer_may_have_as_many_errors_as_its_parent():
    broken = parse(b"def f(a:\n    return a\nx = 1\n", "python")
    assert broken.num_errors == 1
    assert find_refusal_reason(broken, b"def f(b:\n    return b\ny = 1\n") is None
    assert "syntax errors and its parent has 1" in find_refusal_reason(broken, b"def f(b:\n    return b\ny = )(\n")


# Signatures, which code written from a description must keep.

SOURCES = {
    "python": (b"X: int = [1, 2]\n@d\nclass A(B):\n    y = 1\n    def m(self) -> str:\n        z = 1\nasync def f(x):\n    pass\nfor i in x:\n    pass\n", ["X: int", "class A(B):", "  y", "  def m(self) -> str:", "async def f(x):"]),
    "rust": (b"pub const N: u8 = 3; pub struct P { x: u8 } impl P { pub fn new() -> Self { let q = 1; } } trait T { fn a(&self); }", ["pub const N: u8", "pub struct P", "  x: u8", "impl P", "  pub fn new() -> Self", "trait T", "  fn a(&self);"]),
    "javascript": (b"export const f = (p, q) => { const l = 1 }; export class K extends L { m(a) { let z = 1 } }", ["f = (p, q) =>", "class K extends L", "  m(a)"]),
    "jsx": (b"function B(p) { return <A b={1}/> }", ["function B(p)"]),
    "typescript": (b"export interface I { a: string } export function f(a: I): T { return 1 }", ["interface I", "  a: string", "function f(a: I): T"]),
    "tsx": (b"const A = (p: P) => <div>{p}</div>", ["A = (p: P) =>"]),
    "go": (b"package m\ntype S struct { X int }\nfunc (s *S) M(a int) error { q := 1; return nil }\n", ["S struct { X int }", "func (s *S) M(a int) error"]),
    "java": (b"public class A { private int x = 1; public A(int y) { int l = 1; } interface R { void z(); } }", ["public class A", "  private int x = 1;", "  public A(int y)", "  interface R", "    void z();"]),
    "c": (b"#ifdef Y\nstatic int f(int a) { int l = 1; return a; }\n#endif\nint g(int);\n", ["static int f(int a)", "int g(int);"]),
    "c++": (b"namespace n { class A : public B { int m() const { return 1; } int y; }; }", ["namespace n", "  class A : public B", "    int m() const", "    int y;"]),
}  # fmt: skip


@pytest.mark.parametrize("language", GRAMMARS)
def test_signatures_are_visible_to_callers(language):
    text, signatures = SOURCES[language]
    assert find_signatures(parse(text, language)) == signatures


@pytest.mark.parametrize("text", [b"[" * 50_000 + b"]" * 50_000, b"(" * 50_000, b"x = [" + b"1," * 200_000 + b"]", b"\n".join(b" " * depth + b"class A:" for depth in range(500)), b"x = 1\n" * 50_000, b"\xff\n", b""])  # fmt: skip
def test_signatures_of_hostile_texts_are_limited(text):
    assert len(find_signatures(parse(text, "python"))) <= 200


def test_code_with_fences_gets_longer_fences(tmp_path):
    text = b'"""\n````\nfenced\n````\n"""\ndef area_a(): pass\n'
    with ChatServer() as server:
        rewritten(server, [task("a", text=text)], tmp_path)
    assert f"\n`````\n{text.decode()}`````\n" in server.prompts()[0]
