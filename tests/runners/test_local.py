import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from gristmill.core.errors import OutputError
from gristmill.runners.local import NUM_SPARES, LocalRunner, num_cores, num_workers
from gristmill.runners.runner import ATTEMPTS, TASKS_AHEAD_PER_WORKER, TaskFailed
from gristmill.runners.worker import start_method
from support.builds import running


def slower_for_the_first(number):
    time.sleep(0.2 if number == 0 else 0)
    return number * number


def fail_on_three(number):
    if number == 3:
        raise OutputError("three")
    return number


def fail_with_a_lock(number):
    error = ValueError("holds a lock")
    error.lock = threading.Lock()
    raise error


class Task(NamedTuple):
    """What goes wrong on the way to a result, noted as files in a folder."""

    number: int
    folder: Path
    deaths: int = 0
    too_large: int = 0
    wait_for: str | None = None
    is_exclusive: bool = False

    @property
    def told(self):
        return f"number {self.number}"


def do(task):
    if num_deaths(task.folder, task.number) < task.deaths:
        (task.folder / f"death-{task.number}-{os.getpid()}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    too_large = list(task.folder.glob(f"large-{task.number}-*"))
    if len(too_large) < task.too_large:
        (task.folder / f"large-{task.number}-{len(too_large)}").touch()
        raise MemoryError
    while task.wait_for is not None and not (task.folder / task.wait_for).exists():
        time.sleep(0.01)
    if task.is_exclusive:
        (task.folder / "lock").mkdir()
        time.sleep(0.05)
        (task.folder / "lock").rmdir()
    (task.folder / str(task.number)).touch()
    return task.number


def num_deaths(folder, number):
    return len(list(folder.glob(f"death-{number}-*")))


def limit_of(task):
    return 60 if task.wait_for is None else 0.3


def is_first(task):
    return task.number == 0


def pid_of(_):
    return os.getpid()


def kill_once(marker):
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_results_come_in_the_order_of_the_tasks(workers):
    with LocalRunner(workers) as runner:
        assert list(runner.map(slower_for_the_first, range(50))) == [number * number for number in range(50)]


@pytest.mark.parametrize("workers", [1, 2])
def test_tasks_are_drawn_as_they_are_needed(workers):
    drawn = []

    def tasks():
        for number in range(1000):
            drawn.append(number)
            yield number

    with LocalRunner(workers) as runner:
        results = runner.as_done(abs, tasks())
        for num_taken in range(1, 20):
            next(results)
            assert len(drawn) <= num_taken + TASKS_AHEAD_PER_WORKER * workers + 1


def test_one_slow_task_does_not_stall_the_others(tmp_path):
    with LocalRunner(2) as runner:
        tasks = [Task(0, tmp_path, wait_for="49"), *(Task(number, tmp_path) for number in range(1, 50))]
        assert list(runner.map(do, tasks)) == list(range(50))


def test_a_map_that_is_given_up_does_not_disturb_the_next():
    with LocalRunner(2) as runner:
        assert next(runner.map(slower_for_the_first, range(10))) == 0
        assert list(runner.map(slower_for_the_first, range(20))) == [number * number for number in range(20)]


def test_large_tasks_and_large_results_do_not_block_each_other():
    with LocalRunner(2) as runner:
        assert list(runner.map(len, [bytes(1 << 20)] * 20)) == [1 << 20] * 20
        assert [len(result) for result in runner.map(bytes, [1 << 20] * 20)] == [1 << 20] * 20


def test_workers_killed_while_they_answer_are_replaced():
    with LocalRunner(2) as runner:
        results = runner.map(bytes, [1 << 23] * 8)
        next(results)
        for worker in list(runner._pool):
            worker.process.kill()
        assert [len(result) for result in results] == [1 << 23] * 7


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_a_task_is_ours_to_see(workers):
    with pytest.raises(OutputError, match="three"), LocalRunner(workers) as runner:
        list(runner.map(fail_on_three, range(10)))


def test_an_error_that_cannot_travel_is_told_all_the_same():
    with pytest.raises(RuntimeError, match="holds a lock"), LocalRunner(2) as runner:
        list(runner.map(fail_with_a_lock, range(10)))


def test_a_task_that_kills_its_worker_once_is_tried_again(tmp_path):
    with LocalRunner(2) as runner:
        tasks = [Task(number, tmp_path, deaths=number == 3) for number in range(20)]
        assert dict(runner.as_done(do, tasks)) == {number: number for number in range(20)}
        assert len({worker.process.pid for worker in runner._pool if worker.process.is_alive()}) == 2


@pytest.mark.parametrize("workers", [2, 3])
def test_a_task_that_kills_every_worker_fails_alone(tmp_path, workers):
    with LocalRunner(workers) as runner:
        tasks = [Task(number, tmp_path, deaths=9 * (number in {0, 5})) for number in range(20)]
        done = dict(runner.as_done(do, tasks))
    reason = "its worker died (exit code -9), likely for want of memory"
    assert done == {number: TaskFailed(reason) if number in {0, 5} else number for number in range(20)}
    assert num_deaths(tmp_path, 0) == num_deaths(tmp_path, 5) == ATTEMPTS


def test_what_is_queued_behind_a_death_does_not_count_as_tried(tmp_path):
    with LocalRunner(2) as runner:  # more deaths in front of each task than it has attempts
        tasks = [Task(number, tmp_path, deaths=2) for number in range(12)]
        assert dict(runner.as_done(do, tasks)) == {number: number for number in range(12)}


def test_a_task_that_fails_three_times_says_which_it_was(tmp_path):
    with LocalRunner(2) as runner:
        tasks = [Task(number, tmp_path, deaths=9 * (number == 4)) for number in range(8)]
        with pytest.raises(OutputError) as caught:
            list(runner.map(do, tasks))
    assert str(caught.value) == (
        "a task failed 3 times (its worker died (exit code -9), likely for want of memory), at number 4. "
        "Try fewer --workers."
    )


@pytest.mark.parametrize(("workers", "is_alone"), [(1, True), (2, False), (2, True)])
def test_a_task_that_hangs_is_ended(tmp_path, workers, is_alone):
    with LocalRunner(workers) as runner:
        tasks = [Task(number, tmp_path, wait_for="never" if number == 2 else None) for number in range(10)]
        done = dict(
            runner.as_done(do, tasks, seconds_for=limit_of, is_alone=lambda task: is_alone and task.number == 2)
        )
    assert done == {number: TaskFailed("no answer within 0.3 s") if number == 2 else number for number in range(10)}


def test_the_clock_of_a_task_starts_with_it():
    with LocalRunner(2) as runner:  # ten for each worker take longer than the limit together, and each far less
        pool = list(runner._pool)
        done = runner.as_done(time.sleep, [0.3] * 20, seconds_for=lambda _: 2.4)
        assert dict(done) == dict.fromkeys(range(20))
        assert runner._pool == pool


def test_answers_that_wait_for_the_caller_are_not_late():
    with LocalRunner(2) as runner:
        pool = list(runner._pool)
        done = runner.as_done(abs, range(6), seconds_for=lambda _: 1.5)
        results = [next(done)]
        time.sleep(1.8)
        assert dict([*results, *done]) == {number: number for number in range(6)}
        assert runner._pool == pool


@pytest.mark.parametrize("workers", [1, 2])
def test_a_task_without_memory_is_tried_again_and_then_fails(tmp_path, workers):
    with LocalRunner(workers) as runner:
        tasks = [Task(0, tmp_path, too_large=9), Task(1, tmp_path, too_large=2), Task(2, tmp_path)]
        assert dict(runner.as_done(do, tasks)) == {0: TaskFailed("out of memory"), 1: 1, 2: 2}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_task_alone_has_a_process_of_its_own_that_ends(workers):
    with LocalRunner(workers) as runner:
        pids = [pid for _, pid in sorted(runner.as_done(pid_of, range(12), is_alone=lambda number: number % 4 == 0))]
        alone = pids[::4]
        assert len({os.getpid(), *alone}) == 4
        assert not set(alone) & {pid for number, pid in enumerate(pids) if number % 4}
        assert not any(is_alive(pid) for pid in alone)


def test_the_others_go_on_beside_a_task_alone(tmp_path):
    with LocalRunner(2) as runner:
        tasks = [Task(0, tmp_path, wait_for="the others"), *(Task(number, tmp_path) for number in range(1, 20))]
        results = runner.as_done(do, tasks, is_alone=is_first)
        others = [next(results) for _ in range(19)]
        assert sorted(others) == [(number, number) for number in range(1, 20)]
        (tmp_path / "the others").touch()
        assert list(results) == [(0, 0)]


def test_tasks_alone_run_one_at_a_time(tmp_path):
    with LocalRunner(3) as runner:
        tasks = [Task(number, tmp_path, is_exclusive=True) for number in range(5)]
        assert dict(runner.as_done(do, tasks, is_alone=lambda _: True)) == {number: number for number in range(5)}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_task_alone_that_dies_is_tried_again(tmp_path, workers):
    with LocalRunner(workers) as runner:
        tasks = [Task(0, tmp_path, deaths=2), Task(1, tmp_path, deaths=9), Task(2, tmp_path)]
        done = dict(runner.as_done(do, tasks, is_alone=lambda task: task.number < 2))
        assert (done[0], done[2]) == (0, 2)
        assert isinstance(done[1], TaskFailed)


def test_more_workers_may_die_than_there_are_spares(tmp_path):
    with LocalRunner(2) as runner:
        tasks = [Task(number, tmp_path, deaths=1) for number in range(NUM_SPARES + 4)]
        assert dict(runner.as_done(do, tasks)) == {number: number for number in range(NUM_SPARES + 4)}
        assert not runner._spares


def test_a_worker_that_dies_beside_other_threads_is_spawned_again(tmp_path):
    release = threading.Event()
    with LocalRunner(2) as runner:
        other = threading.Thread(target=release.wait, args=(60,))
        other.start()
        try:
            done = runner.as_done(kill_once, [tmp_path / str(number) for number in range(NUM_SPARES + 2)])
            assert dict(done) == dict.fromkeys(range(NUM_SPARES + 2))
        finally:
            release.set()
            other.join()


def test_two_maps_may_be_open_at_once():
    with LocalRunner(2) as runner:
        pairs = zip(runner.map(abs, range(0, -30, -1)), runner.map(slower_for_the_first, range(30)), strict=True)
        assert list(pairs) == [(number, number * number) for number in range(30)]


def test_a_run_that_is_given_up_leaves_no_process_of_its_own(tmp_path):
    with LocalRunner(2) as runner:
        done = runner.as_done(do, [Task(0, tmp_path, wait_for="never"), Task(1, tmp_path)], is_alone=is_first)
        assert next(done) == (1, 1)
        alone = runner._alone.process.pid
        done.close()
        assert not is_alive(alone)
        assert dict(runner.as_done(do, [Task(2, tmp_path)])) == {0: 2}


def test_errors_of_a_run_that_was_given_up_are_nobodys():
    with LocalRunner(2) as runner:
        next(runner.as_done(fail_on_three, range(4)))
        assert list(runner.map(abs, range(20))) == list(range(20))


def test_small_corpora_take_one_process():
    assert num_workers("auto", 1000) == 1
    assert num_workers("auto", 1 << 40) == num_cores()
    assert num_workers(7, 0) == 7


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_workers_end_with_a_parent_that_is_killed():
    code = (
        "import time, os\n"
        "from gristmill.runners.local import LocalRunner\n"
        "with LocalRunner(2) as runner:\n"
        "    print(*[worker.process.pid for worker in runner._pool + runner._spares], flush=True)\n"
        "    time.sleep(60)\n"
    )
    with running([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
        parent.wait()
    assert len(workers) == 2 + NUM_SPARES
    deadline = time.monotonic() + 10
    while any(is_alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_alive(pid) for pid in workers)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as status:
            return status.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_beside_other_threads_workers_start_afresh():
    release = threading.Event()
    other = threading.Thread(target=release.wait, args=(60,))
    other.start()
    try:
        assert start_method() == "spawn"
        with LocalRunner(2) as runner:
            assert list(runner.map(abs, [-1, -2, -3])) == [1, 2, 3]
    finally:
        release.set()
        other.join()


@pytest.mark.parametrize("workers", [1, 2])
def test_steps_are_taken_while_a_worker_is_busy_or_else_at_once(tmp_path, workers):
    """The one task waits for a file that the third step makes."""

    def steps():
        yield from range(3)
        (tmp_path / "go on").touch()

    with LocalRunner(workers) as runner:
        runner.meanwhile(steps())
        assert (tmp_path / "go on").exists() is (workers == 1)
        assert list(runner.map(do, [Task(0, tmp_path, wait_for="go on")])) == [0]


def test_an_error_of_a_step_is_raised(tmp_path):
    def steps():
        yield
        raise OutputError("no space")

    with LocalRunner(2) as runner:
        runner.meanwhile(steps())
        with pytest.raises(OutputError, match="no space"):
            list(runner.map(slower_for_the_first, range(4)))
