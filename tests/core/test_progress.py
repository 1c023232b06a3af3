import io

from gristmill.core import progress as progress_module
from gristmill.core.progress import Progress


def test_seconds_add_up_per_phase():
    progress = Progress()
    for _ in range(2):
        with progress.phase("scan"):
            pass
    assert list(progress.seconds) == ["scan"]
    assert progress.seconds["scan"] >= 0


def test_log_lines_are_printed_for_long_phases_only(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress_module.time, "perf_counter", lambda: now[0])
    stream = io.StringIO()
    progress = Progress(quiet=False, stream=stream)
    with progress.phase("scan") as step:
        step.advance(5)
    assert stream.getvalue() == ""
    with progress.phase("prepare", total=100) as step:
        now[0] += 6
        step.advance(25)
        now[0] += 4
        step.advance(75)
    assert stream.getvalue() == "prepare: 25 of 100 files, 18 s left\nprepare: 100 files in 10.0 s\n"


def test_quiet_progress_prints_nothing():
    stream = io.StringIO()
    with Progress(quiet=True, stream=stream).phase("scan", total=1) as step:
        step.advance(1)
    assert stream.getvalue() == ""
