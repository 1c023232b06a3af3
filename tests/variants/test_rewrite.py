"""Rewriting by a model, against a real server on loopback that answers well, badly, late or never."""

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
from gristmill.variants.answers import UnusableAnswerError, code_in, in_manner_of, why_refused
from gristmill.variants.endpoint import MAX_FAILED_IN_A_ROW, Endpoint, seconds_to_wait
from gristmill.variants.grammars import GRAMMARS, parse
from gristmill.variants.rewrite import TASKS_PER_THREAD, Failure, Rewriter, RewriteTask, Rewritten, signatures_of
from support import chat_server as acts
from support.chat_server import CHILD, KEY, PARENT, ChatServer, fails, says, sends


@pytest.fixture(autouse=True)
def no_thread_is_left():
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


def num_files(folder):
    return sum(path.is_file() for path in folder.rglob("*"))


# What is asked, and what comes back.


def test_a_paraphrase_is_one_request_and_keeps_to_the_protocol(tmp_path):
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


def test_an_answer_may_be_twice_as_long_as_its_text(tmp_path):
    """As far as the context goes; a text that leaves no room for an answer of its own length is not sent."""
    tasks = [task("a"), long_task("b", 30_000)]
    with ChatServer() as server:
        rewritten(server, tasks, tmp_path / "free")
        assert sorted(asked["max_tokens"] for _, _, asked in server.requests) == [4096, 20_000]
    with ChatServer() as server:
        results = rewritten(server, tasks, tmp_path / "small", context_tokens=15_000)
        assert [asked["max_tokens"] for _, _, asked in server.requests] == [4096]
    assert results[1][1].why is WhyNoVariant.TEXT_TOO_LONG
    assert re.fullmatch(r"about 10,\d+ tokens and an answer of 10,000 do not fit into 15,000", results[1][1].reason)
    with ChatServer() as server:
        rewritten(server, tasks, tmp_path / "large", context_tokens=24_000)
        (less,) = [asked["max_tokens"] for _, _, asked in server.requests if asked["max_tokens"] > 4096]
    assert 13_000 < less < 14_000
    with ChatServer() as server:
        rewritten(server, tasks, tmp_path / "set", context_tokens=15_000, max_tokens=500)
        assert [asked["max_tokens"] for _, _, asked in server.requests] == [500, 500]


def test_a_description_that_leaves_no_room_for_the_code_is_not_sent(tmp_path):
    with ChatServer({"a": [says("A function area_a. " * 400)]}) as server:
        back = task("a", way="back_translation")
        ((_, outcome),) = rewritten(server, [back], tmp_path, context_tokens=2000)
        assert server.num_asked == 1
    assert outcome.why is WhyNoVariant.TEXT_TOO_LONG


def test_a_back_translation_never_shows_the_code_to_the_one_who_writes_it(tmp_path):
    with ChatServer() as server:
        ((_, outcome),) = rewritten(server, [task("a", way="back_translation")], tmp_path)
    assert outcome == Rewritten(CHILD.format(name="a").encode())
    describe, implement = server.prompts()
    assert "result = width * height" in describe
    assert "A function area_a that multiplies." in implement
    assert "def area_a(width, height):" in implement
    assert "result = width * height" not in implement


def test_an_answer_without_a_fence_is_taken_whole(tmp_path):
    assert outcome_of(says(acts.unfenced("a")), tmp_path) == Rewritten(CHILD.format(name="a").encode())


@pytest.mark.parametrize("suffix", ["", "/", "/chat/completions", "/chat/completions/"])
def test_the_url_may_say_where_completions_are(tmp_path, suffix):
    with ChatServer() as server:
        rewritten(server, [task("a")], tmp_path, url=server.url + suffix, model=None)
    assert [path for path, _, _ in server.requests] == ["/v1/models", "/v1/chat/completions"]


def test_without_a_name_the_first_model_is_asked_for_once(tmp_path):
    with ChatServer() as server, Rewriter(endpoint(server, model=None), tmp_path) as rewriter:
        list(rewriter.rewrite_all(task(f"n{number}") for number in range(10)))
        assert rewriter.model == "first"
    assert {asked["model"] for _, _, asked in server.requests if asked} == {"first"}
    assert len(server.requests) == 11


@pytest.mark.parametrize(
    "act", [fails(401), sends(b"{}"), sends(b'{"data": []}'), sends(b'{"data": [{"id": 3}]}'), sends(b"<html>"), sends(b'{"data": [{"id": "a\\nb"}]}')]
)  # fmt: skip
def test_a_server_that_lists_no_model_is_an_input_error(tmp_path, act):
    with ChatServer({"models": [act]}) as server, pytest.raises(InputError, match="name the model") as caught:
        rewritten(server, [task("a")], tmp_path, model=None)
    assert KEY not in str(caught.value)
    assert server.num_asked == 0


def test_the_order_is_kept_however_long_answers_take(tmp_path):
    chance = random.Random(3)

    def takes_its_time(chat, name):
        time.sleep(chance.random() / 20)
        acts.good(chat, name)

    names = [f"n{number}" for number in range(60)]
    with ChatServer({name: [takes_its_time] for name in names}) as server:
        results = rewritten(server, map(task, names), tmp_path, concurrency=8)
    assert [done.key for done, _ in results] == names
    assert [outcome.text for _, outcome in results] == [CHILD.format(name=name).encode() for name in names]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_no_more_than_so_many_requests_are_on_their_way(tmp_path, concurrency):
    with ChatServer() as server:
        server.seconds = 0.05
        rewritten(server, [task(f"n{number}") for number in range(12)], tmp_path, concurrency=concurrency)
    assert server.max_active == concurrency


def test_tasks_are_taken_only_a_little_ahead(tmp_path):
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


def test_a_language_without_a_grammar_is_not_asked_about(tmp_path):
    with ChatServer() as server:
        results = rewritten(server, [task("a", language="cobol"), task("b", text=b"area_b \xff")], tmp_path)
    assert {outcome.why for _, outcome in results} == {WhyNoVariant.ANSWER_REFUSED}
    assert "cobol" in results[0][1].reason
    assert "UTF-8" in results[1][1].reason
    assert server.requests == []


# The cache.


def test_a_rerun_asks_nothing(tmp_path):
    tasks = [task(f"n{number}", way=("paraphrase", "back_translation")[number % 2]) for number in range(10)]
    tasks += [task("empty"), task("cut")]
    with ChatServer({"empty": [says("")], "cut": [says("x", "length")]}) as server:
        first = rewritten(server, tasks, tmp_path)
        num_asked = server.num_asked
        assert num_asked == 5 + 2 * 5 + 2
        assert rewritten(server, tasks, tmp_path) == first
        assert server.num_asked == num_asked
    # Nor does it need the server, and the same model may stand elsewhere.
    assert rewritten(server, tasks, tmp_path, url="http://127.0.0.1:9/v1") == first


@pytest.mark.parametrize(
    "change", [{"seed": 8}, {"way": "back_translation"}, {"language": "c"}, {"text": b"area_a = 1\n"}], ids=str
)
def test_whatever_decides_an_answer_is_asked_anew(tmp_path, change):
    with ChatServer() as server:
        rewritten(server, [task("a")], tmp_path)
        rewritten(server, [task("a", **change)], tmp_path)
    assert server.num_asked == (3 if "way" in change else 2)


@pytest.mark.parametrize("change", [{"model": "other"}, {"temperature": 0.1}, {"max_tokens": 77}], ids=str)
def test_settings_that_decide_an_answer_ask_anew(tmp_path, change):
    with ChatServer() as server:
        rewritten(server, [task("a")], tmp_path)
        rewritten(server, [task("a")], tmp_path, **change)
    assert server.num_asked == 2


def test_the_same_question_twice_is_asked_once(tmp_path):
    with ChatServer() as server:
        server.seconds = 0.05
        results = rewritten(server, [task("a", key=number) for number in range(6)], tmp_path)
    assert [done.key for done, _ in results] == list(range(6))
    assert server.num_asked == 1


@pytest.mark.parametrize("damage", [lambda old: old[:-3], lambda _: b"", lambda old: old + b" ", lambda old: old.replace(b"height", b"weight"), lambda _: b"\xff" * 99])  # fmt: skip
def test_a_damaged_answer_is_asked_for_again_and_mended(tmp_path, damage):
    with ChatServer() as server:
        first = rewritten(server, [task("a")], tmp_path)
        (kept,) = [path for path in tmp_path.rglob("*") if path.is_file()]
        whole = kept.read_bytes()
        kept.write_bytes(damage(whole))
        assert rewritten(server, [task("a")], tmp_path) == first
        assert server.num_asked == 2
        assert kept.read_bytes() == whole


def test_failures_of_the_server_are_not_kept(tmp_path):
    names = {"down": fails(500), "odd": sends(b"{"), "long": fails(413), "closed": acts.hangs_up}
    with ChatServer({name: [act] for name, act in names.items()}) as server:
        first = rewritten(server, map(task, names), tmp_path)
        assert all(isinstance(outcome, Failure) and outcome.why is WhyNoVariant.NO_ANSWER for _, outcome in first)
        assert num_files(tmp_path) == 0
        again = rewritten(server, map(task, names), tmp_path)
    assert all(isinstance(outcome, Rewritten) for _, outcome in again)


def test_a_cache_that_cannot_be_made_is_told_before_any_request(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with ChatServer() as server, pytest.raises(OutputError, match="file"):
        rewritten(server, [task("a")], tmp_path / "file/cache")
    assert server.requests == []


# Answers that are of no use.


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (says(""), "empty"),
        (says(" \n "), "empty"),
        (says(None), "empty"),
        (says("```python\n\n```"), "empty"),
        (says("```python\nx = 1\n"), "never closed"),
        (says(acts.fenced("a"), "length"), "cut off"),
        (says("x = '\0'"), "NUL"),
    ],
)
def test_an_answer_of_no_use_is_kept_as_such(tmp_path, act, reason):
    outcome = outcome_of(act, tmp_path)
    assert outcome.why is WhyNoVariant.ANSWER_REFUSED
    assert reason in outcome.reason
    assert num_files(tmp_path / "cache") == 1


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (sends(b'{"choices": ['), "no JSON"),
        (sends(b""), "no JSON"),
        (sends(b"[" * 100_000), "no"),
        (sends(b'{"choices": []}'), "without choices"),
        (sends(b"{}"), "no chat completion"),
        (sends(b"[]"), "no chat completion"),
        (sends(b'{"choices": [{"message": {"content": 3}}]}'), "no chat completion"),
        (sends(b'{"choices": [{"message": "x"}]}'), "no chat completion"),
        (sends(b'{"choices": {"message": "x"}}'), "no chat completion"),
        (sends(b'{"choices": [{"message": {"content": "\xff"}}]}'), "no JSON"),
        (sends(b'{"choices": [{"message": {"content": "\\ud800"}}]}'), "no JSON"),
        (sends(b'{"choices": [{"message": {"content": "\\udc80 and more"}}]}'), "no JSON"),
        (sends(b" <html><body>area_a</body></html>", kind="text/html"), "web page"),
        (sends(b"", 302, Location="http://127.0.0.1:9/elsewhere"), "redirect, which is not followed"),
        (sends(b"", 308, Location="/v2/chat/completions"), "redirect, which is not followed"),
        (sends(b"", 204), "HTTP 204"),
        (fails(401), "check the key in $GRISTMILL_REWRITE_KEY"),
        (fails(404), "check the URL"),
        (fails(400), "HTTP 400 Bad Request"),
        (fails(499), "HTTP 499"),
    ],
)
def test_what_would_be_the_same_again_is_not_tried_again(tmp_path, act, reason):
    with ChatServer({"a": [act]}) as server:
        ((_, outcome),) = rewritten(server, [task("a")], tmp_path, num_retries=3)
    assert outcome.why is WhyNoVariant.NO_ANSWER
    assert reason in outcome.reason
    assert len(server.requests) == 1
    assert KEY not in outcome.reason
    assert "area_a" not in outcome.reason


def test_a_body_without_end_is_left_after_a_few_megabytes(tmp_path):
    with ChatServer({"a": [acts.never_ends]}) as server:
        ((_, outcome),) = rewritten(server, [task("a")], tmp_path, timeout_seconds=20)
    assert server.num_sent < 64 << 20  # what the sockets hold included
    assert outcome == Failure(WhyNoVariant.NO_ANSWER, "an answer of more than 8 MiB")


# Trying again.


@pytest.mark.parametrize("act", [fails(500), fails(503), fails(408), fails(409), fails(425), fails(429), acts.hangs_up, acts.breaks_off, acts.breaks_off_in_a_chunk, acts.speaks_otherwise])  # fmt: skip
def test_what_may_pass_is_tried_again(tmp_path, short_waits, act):
    with ChatServer({"a": [act]}) as server:
        ((_, outcome),) = rewritten(server, [task("a")], tmp_path, num_retries=1)
    assert outcome == Rewritten(CHILD.format(name="a").encode())
    assert server.num_asked == 2


def test_it_is_tried_no_more_often_than_asked(tmp_path):
    with ChatServer({"a": [fails(500, Retry_After="0")] * 9}) as server:
        ((_, outcome),) = rewritten(server, [task("a")], tmp_path, num_retries=3)
    assert outcome == Failure(WhyNoVariant.NO_ANSWER, "HTTP 500 Internal Server Error")
    assert server.num_asked == 4


def test_a_server_says_how_long_to_wait(tmp_path, short_waits):
    """While one text waits for as long as that, another is asked about four times, with pauses of its own."""
    script = {"told": [fails(429, Retry_After="100")], "untold": [fails(500)] * 3}
    with ChatServer(script) as server, Rewriter(endpoint(server, num_retries=3), tmp_path) as rewriter:
        results = rewriter.rewrite_all([task("untold"), task("told")])
        assert isinstance(next(results)[1], Rewritten)
        assert (server.num_asked_about("untold"), server.num_asked_about("told")) == (4, 1)


def test_waits_grow_and_end():
    assert [seconds_to_wait(attempt, None) for attempt in range(4)] == [0.5, 1, 2, 4]
    assert seconds_to_wait(90, None) == 30
    assert seconds_to_wait(0, "7") == 7
    assert seconds_to_wait(0, "-7") == 0
    assert seconds_to_wait(0, "9" * 30) == 120
    assert seconds_to_wait(2, "soon") == seconds_to_wait(2, "inf") == seconds_to_wait(2, "9" * 9999) == 2
    now = dt.datetime.now(dt.UTC)
    assert 17 < seconds_to_wait(0, format_datetime(now + dt.timedelta(seconds=20), usegmt=True)) <= 20
    assert seconds_to_wait(0, format_datetime(now + dt.timedelta(days=2), usegmt=True)) == 120
    assert seconds_to_wait(0, "Fri, 31 Dec 1999 23:59:59 GMT") == 0


@pytest.mark.parametrize("act", [acts.is_silent, acts.drips, acts.drips_headers])
def test_a_slow_server_is_left_at_the_deadline(tmp_path, act):
    """Each would go on for ten seconds and more, and has not come to its end."""
    with ChatServer({"a": [act]}) as server:
        ((_, outcome),) = rewritten(server, [task("a")], tmp_path, timeout_seconds=0.6)
        assert server.num_acted == 0
    assert outcome == Failure(WhyNoVariant.NO_ANSWER, "no complete answer within 0.6 seconds")


def test_a_slow_answer_within_the_deadline_is_taken(tmp_path):
    outcome = outcome_of(lambda chat, name: acts.drips(chat, name, pause=0.002), tmp_path)
    assert outcome == Rewritten(CHILD.format(name="a").encode())


def test_a_server_that_reads_nothing_is_left_at_the_deadline(tmp_path):
    import socket

    with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        big = task("a", text=b"x = 1\n" * 2_000_000)
        settings = Endpoint(url=url, model="m", timeout_seconds=0.6, num_retries=0)
        with Rewriter(settings, tmp_path) as rewriter:
            ((_, outcome),) = rewriter.rewrite_all([big])
    assert outcome.reason == "no complete answer within 0.6 seconds"


def test_leaving_early_does_not_wait_for_a_slow_server(tmp_path):
    with ChatServer({"a": [acts.is_silent], "b": [fails(500, Retry_After="100")]}) as server:
        with (
            pytest.raises(KeyboardInterrupt),
            Rewriter(endpoint(server, timeout_seconds=100, num_retries=5), tmp_path) as rewriter,
        ):
            results = rewriter.rewrite_all([task("c"), task("a"), task("b")])
            next(results)
            raise KeyboardInterrupt
        assert server.num_asked_about("a") <= 1  # and not given up and asked anew
        assert server.num_asked_about("b") <= 1
        assert server.num_acted <= 2, "the silent one is still silent"


# Giving up.


@pytest.mark.parametrize("act", [acts.hangs_up, fails(500), fails(401), sends(b"<html>")])
def test_a_server_that_never_answers_ends_the_run(tmp_path, act):
    names = [f"n{number}" for number in range(200)]
    seen = []
    with ChatServer({name: [act] for name in names}) as server:
        with (
            pytest.raises(InputError, match=f"no answer to {MAX_FAILED_IN_A_ROW} texts") as caught,
            Rewriter(endpoint(server, concurrency=4), tmp_path) as rewriter,
        ):
            seen.extend(rewriter.rewrite_all(map(task, names)))
        assert MAX_FAILED_IN_A_ROW <= server.num_asked <= MAX_FAILED_IN_A_ROW + 4
    assert len(seen) <= MAX_FAILED_IN_A_ROW
    message = str(caught.value)
    assert server.url in message
    assert "the same command goes on" in message
    assert "\n" not in message
    assert KEY not in message
    assert "area_" not in message


def test_giving_up_does_not_wait_for_those_that_wait(tmp_path):
    names = [f"n{number}" for number in range(60)]
    script = {name: [fails(401)] for name in names} | {"n0": [fails(429, Retry_After="100")]}
    with ChatServer(script) as server:
        with pytest.raises(InputError, match="check the key"):
            rewritten(server, map(task, names), tmp_path, num_retries=1)
        assert server.num_asked_about("n0") == 1


def test_a_port_that_nobody_listens_on_is_named(tmp_path):
    settings = Endpoint(url="http://127.0.0.1:9/v1", model="m", num_retries=0)
    with pytest.raises(InputError, match=r"127\.0\.0\.1:9/v1 .*connection refused"), Rewriter(settings, tmp_path) as r:
        list(r.rewrite_all(task(f"n{number}") for number in range(100)))


def test_failures_between_answers_do_not_end_the_run(tmp_path):
    names = [f"n{number}" for number in range(60)]
    with ChatServer({name: [fails(500)] for name in names if int(name[1:]) % 10}) as server:
        results = rewritten(server, map(task, names), tmp_path, concurrency=1)
    assert sum(isinstance(outcome, Rewritten) for _, outcome in results) == 6


def test_texts_that_are_too_long_do_not_end_the_run(tmp_path):
    names = [f"n{number}" for number in range(2 * MAX_FAILED_IN_A_ROW)]
    with ChatServer({name: [fails(400)] for name in names}) as server:
        results = rewritten(server, map(task, names), tmp_path)
    assert {outcome for _, outcome in results} == {Failure(WhyNoVariant.NO_ANSWER, "HTTP 400 Bad Request")}


def test_a_run_that_was_given_up_goes_on_from_its_answers(tmp_path):
    names = [f"n{number}" for number in range(60)]
    with ChatServer({name: [acts.hangs_up] for name in names[30:]}) as server:
        with pytest.raises(InputError):
            rewritten(server, map(task, names), tmp_path, concurrency=2)
        assert num_files(tmp_path) == 30
        server.script.clear()
        num_asked = server.num_asked
        results = rewritten(server, map(task, names), tmp_path)
        assert server.num_asked == num_asked + 30
    assert all(isinstance(outcome, Rewritten) for _, outcome in results)


# The key.


def test_the_key_is_in_its_header_and_nowhere_else(tmp_path):
    with ChatServer({"b": [fails(500)]}) as server:
        results = rewritten(server, [task("a"), task("b"), task("c", way="back_translation")], tmp_path, model=None)
    assert {headers["Authorization"] for _, headers, _ in server.requests} == {f"Bearer {KEY}"}
    assert len(server.requests) == 5
    assert KEY not in repr(server.prompts()) + repr(results) + repr(endpoint(server))
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(kept) == 3
    assert not any(KEY.encode() in path.read_bytes() or KEY in str(path) for path in kept)


def test_without_a_key_there_is_no_header(tmp_path, monkeypatch):
    monkeypatch.delenv("GRISTMILL_REWRITE_KEY")
    with ChatServer() as server:
        rewritten(server, [task("a")], tmp_path)
    assert "Authorization" not in server.requests[0][1]


def test_the_key_comes_from_the_variable_that_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("OTHER_KEY", " other\n")
    with ChatServer() as server:
        rewritten(server, [task("a")], tmp_path, key_variable="OTHER_KEY")
    assert server.requests[0][1]["Authorization"] == "Bearer other"


@pytest.mark.parametrize("odd", ["se\ncret", "secr\u00e9t", "se\x1bcret"])
def test_a_key_that_no_header_takes_is_refused_without_showing_it(tmp_path, monkeypatch, odd):
    monkeypatch.setenv("GRISTMILL_REWRITE_KEY", odd)
    with ChatServer() as server, pytest.raises(ConfigError, match="GRISTMILL_REWRITE_KEY") as caught:
        rewritten(server, [task("a")], tmp_path)
    assert odd not in str(caught.value)
    assert "cr" not in str(caught.value)
    assert server.requests == []


@pytest.mark.parametrize("variable", [KEY, "", "A=B", "A\n"])
def test_a_key_in_place_of_its_variable_is_refused_without_showing_it(variable):
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
    ("url", "said"),
    [
        ("localhost:8000/v1", "begin with http"),
        ("ftp://host/v1", "begin with http"),
        ("", "begin with http"),
        ("http://", "names no host"),
        ("http:///v1", "names no host"),
        ("http://[::1/v1", "names no host"),
        ("http://host:port/v1", "names no host"),
        ("http://host:99999/v1", "names no host"),
        ("http://host:0/v1", "names no host"),
        ("http://ho st/v1", "names no host"),
        ("http://host/v1\r\nX-Odd:1", "names no host"),
        ("http://host/v\t1", "names no host"),
        ("http://hôst/v1", "names no host"),
        ("http://me:hunter2@host/v1", "no user, password"),
        ("http://hunter2@host/v1", "no user, password"),
        ("http://me:1/hunter2@host/v1", "no user, password"),
        ("http://host/v1?key=hunter2", "no user, password"),
        ("http://host/v1#hunter2", "no user, password"),
    ],
)
def test_an_address_that_cannot_be_asked_is_refused(url, said):
    with pytest.raises(ConfigError, match=said) as caught:
        Endpoint(url=url)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "setting",
    [{"timeout_seconds": 0}, {"timeout_seconds": float("nan")}, {"timeout_seconds": float("inf")}, {"num_retries": -1}, {"concurrency": 0}, {"max_tokens": 0}, {"context_tokens": 0}, {"temperature": -0.1}, {"temperature": 2.1}, {"model": " "}],
    ids=str,
)  # fmt: skip
def test_a_setting_that_cannot_be_is_refused_by_its_name(setting):
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


def test_https_is_spoken_where_the_certificate_is_trusted(tmp_path, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with ChatServer({"slow": [acts.drips], "off": [acts.breaks_off]}, wrap=tls(certificate)) as server:
        results = rewritten(server, map(task, ["a", "slow", "off"]), tmp_path, timeout_seconds=1)
    outcomes = [outcome for _, outcome in results]
    assert outcomes[0] == Rewritten(CHILD.format(name="a").encode())
    assert [outcome.reason for outcome in outcomes[1:]] == [
        "no complete answer within 1 seconds",
        "the answer is incomplete",
    ]


def test_a_certificate_of_nobody_is_not_trusted(tmp_path, certificate):
    with ChatServer(wrap=tls(certificate)) as server:
        ((_, outcome),) = rewritten(server, [task("a")], tmp_path)
    assert "certificate is not trusted" in outcome.reason
    assert server.requests == []


def test_https_to_a_server_that_speaks_http_says_so(tmp_path):
    with ChatServer() as server:
        ((_, outcome),) = rewritten(server, [task("a")], tmp_path, url=server.url.replace("http:", "https:"))
    assert "try http://" in outcome.reason


# Taking an answer apart.


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
def test_the_first_block_is_taken_and_nothing_else_is_stripped(answer, code):
    assert code_in(answer) == code


@pytest.mark.parametrize("answer", ["```", "```python", "```\nx", "````\nx\n```"])
def test_a_block_that_is_never_closed_is_refused(answer):
    with pytest.raises(UnusableAnswerError):
        code_in(answer)


@pytest.mark.parametrize("answer", ["```x\n" * 300_000, "`" * 2_000_000, "```\n" + " " * 2_000_000, "   " * 600_000])
def test_an_answer_is_taken_apart_in_linear_time(answer):
    """By the square of these lengths it would take hours, and the limit of every test end it."""
    with pytest.raises(UnusableAnswerError):
        code_in(answer)
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
def test_line_ends_are_those_of_the_parent(parent, code, text):
    assert in_manner_of(parent, code) == text


def test_line_ends_are_kept_on_the_way_through(tmp_path):
    text = PARENT.format(name="a").replace("\n", "\r\n").encode().removesuffix(b"\r\n")
    with ChatServer() as server:
        ((_, outcome),) = rewritten(server, [task("a", text=text)], tmp_path)
    assert outcome.text == CHILD.format(name="a").replace("\n", "\r\n").encode().removesuffix(b"\r\n")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"def f(b, a):\n    return a + b\n", None),
        (b"def f(a, b):\n    return a + b\n", "its parent again"),
        (b"def f(a,b):\r\n  return a+b", "its parent again"),
        (b"def f(a, b:\n    return b + a\n", "syntax error"),
        (b"Sorry, I cannot help with that file.", "syntax error"),
        (b"x = 1", "bytes"),
        (b"def f(b, a):\n    return a + b\n" * 5, "bytes"),
        (b"", "bytes"),
    ],
)
def test_an_answer_must_parse_and_differ(answer, reason):
    refused = why_refused(parse(b"def f(a, b):\n    return a + b\n", "python"), answer)
    assert refused is None if reason is None else reason in refused


def test_a_parent_with_errors_allows_as_many():
    broken = parse(b"def f(a:\n    return a\nx = 1\n", "python")
    assert broken.num_errors == 1
    assert why_refused(broken, b"def f(b:\n    return b\ny = 1\n") is None
    assert "syntax errors, its parent 1" in why_refused(broken, b"def f(b:\n    return b\ny = )(\n")


# What a description must keep.

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
def test_signatures_are_what_callers_see(language):
    text, signatures = SOURCES[language]
    assert signatures_of(parse(text, language)) == signatures


@pytest.mark.parametrize("text", [b"[" * 50_000 + b"]" * 50_000, b"(" * 50_000, b"x = [" + b"1," * 200_000 + b"]", b"\n".join(b" " * depth + b"class A:" for depth in range(500)), b"x = 1\n" * 50_000, b"\xff\n", b""])  # fmt: skip
def test_signatures_of_odd_texts_are_few_and_there_is_an_end(text):
    assert len(signatures_of(parse(text, "python"))) <= 200


def test_code_with_fences_in_it_is_fenced_by_longer_ones(tmp_path):
    text = b'"""\n````\nfenced\n````\n"""\ndef area_a(): pass\n'
    with ChatServer() as server:
        rewritten(server, [task("a", text=text)], tmp_path)
    assert f"\n`````\n{text.decode()}`````\n" in server.prompts()[0]
