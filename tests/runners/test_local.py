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
from gristmill.runners.runner import MAX_ATTEMPTS, QUEUED_TASKS_PER_WORKER, TaskFailed
from gristmill.runners.worker import start_method
from support.builds import running


def square_slowly_at_zero(number):
    time.sleep(0.2 if number == 0 else 0)
    return number * number


def fail_on_three(number):
    if number == 3:
        raise OutputError("three")
    return number


def fail_with_unpicklable_error(number):
    error = ValueError("holds a lock")
    error.lock = threading.Lock()
    raise error


class Task(NamedTuple):
    """Task that fails a given number of times. A file in `folder` records each failure and the success."""

    number: int
    folder: Path
    deaths: int = 0
    memory_errors: int = 0
    wait_for: str | None = None
    is_exclusive: bool = False

    @property
    def description(self):
        return f"number {self.number}"


def run_task(task):
    if num_deaths(task.folder, task.number) < task.deaths:
        (task.folder / f"death-{task.number}-{os.getpid()}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    memory_errors = list(task.folder.glob(f"large-{task.number}-*"))
    if len(memory_errors) < task.memory_errors:
        (task.folder / f"large-{task.number}-{len(memory_errors)}").touch()
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


def timeout_of(task):
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
def test_map_yields_results_in_task_order(workers):
    with LocalRunner(workers) as runner:
        assert list(runner.map(square_slowly_at_zero, range(50))) == [number * number for number in range(50)]


@pytest.mark.parametrize("workers", [1, 2])
def test_tasks_are_drawn_only_when_needed(workers):
    drawn = []

    def tasks():
        for number in range(1000):
            drawn.append(number)
            yield number

    with LocalRunner(workers) as runner:
        results = runner.as_completed(abs, tasks())
        for num_taken in range(1, 20):
            next(results)
            assert len(drawn) <= num_taken + QUEUED_TASKS_PER_WORKER * workers + 1


def test_one_slow_task_does_not_stall_the_others(tmp_path):
    with LocalRunner(2) as runner:
        tasks = [Task(0, tmp_path, wait_for="49"), *(Task(number, tmp_path) for number in range(1, 50))]
        assert list(runner.map(run_task, tasks)) == list(range(50))


def test_abandoned_map_does_not_affect_the_next():
    with LocalRunner(2) as runner:
        assert next(runner.map(square_slowly_at_zero, range(10))) == 0
        assert list(runner.map(square_slowly_at_zero, range(20))) == [number * number for number in range(20)]


def test_large_tasks_and_large_results_do_not_deadlock():
    with LocalRunner(2) as runner:
        assert list(runner.map(len, [bytes(1 << 20)] * 20)) == [1 << 20] * 20
        assert [len(result) for result in runner.map(bytes, [1 << 20] * 20)] == [1 << 20] * 20


def test_workers_killed_while_answering_are_replaced():
    with LocalRunner(2) as runner:
        results = runner.map(bytes, [1 << 23] * 8)
        next(results)
        for worker in list(runner._pool):
            worker.process.kill()
        assert [len(result) for result in results] == [1 << 23] * 7


@pytest.mark.parametrize("workers", [1, 2])
def test_error_of_a_task_is_raised(workers):
    with pytest.raises(OutputError, match="three"), LocalRunner(workers) as runner:
        list(runner.map(fail_on_three, range(10)))


def test_error_that_cannot_be_pickled_is_raised_with_its_text():
    with pytest.raises(RuntimeError, match="holds a lock"), LocalRunner(2) as runner:
        list(runner.map(fail_with_unpicklable_error, range(10)))


def test_task_that_kills_its_worker_once_is_retried(tmp_path):
    with LocalRunner(2) as runner:
        tasks = [Task(number, tmp_path, deaths=number == 3) for number in range(20)]
        assert dict(runner.as_completed(run_task, tasks)) == {number: number for number in range(20)}
        assert len({worker.process.pid for worker in runner._pool if worker.process.is_alive()}) == 2


@pytest.mark.parametrize("workers", [2, 3])
def test_task_that_kills_every_worker_fails_without_affecting_others(tmp_path, workers):
    with LocalRunner(workers) as runner:
        tasks = [Task(number, tmp_path, deaths=9 * (number in {0, 5})) for number in range(20)]
        done = dict(runner.as_completed(run_task, tasks))
    reason = "its worker died (exit code -9), probably because it ran out of memory"
    assert done == {number: TaskFailed(reason) if number in {0, 5} else number for number in range(20)}
    assert num_deaths(tmp_path, 0) == num_deaths(tmp_path, 5) == MAX_ATTEMPTS


def test_tasks_queued_after_a_dead_worker_do_not_count_as_attempted(tmp_path):
    with LocalRunner(2) as runner:  # in total, more workers die than one task has attempts
        tasks = [Task(number, tmp_path, deaths=2) for number in range(12)]
        assert dict(runner.as_completed(run_task, tasks)) == {number: number for number in range(12)}


def test_error_after_three_failures_names_the_task(tmp_path):
    with LocalRunner(2) as runner:
        tasks = [Task(number, tmp_path, deaths=9 * (number == 4)) for number in range(8)]
        with pytest.raises(OutputError) as caught:
            list(runner.map(run_task, tasks))
    assert str(caught.value) == (
        "the task that makes number 4 failed 3 times: its worker died (exit code -9), probably because it ran out of "
        "memory. Try fewer --workers."
    )


@pytest.mark.parametrize(("workers", "is_alone"), [(1, True), (2, False), (2, True)])
def test_hanging_task_is_killed(tmp_path, workers, is_alone):
    with LocalRunner(workers) as runner:
        tasks = [Task(number, tmp_path, wait_for="never" if number == 2 else None) for number in range(10)]
        done = dict(
            runner.as_completed(
                run_task, tasks, timeout_for=timeout_of, is_isolated=lambda task: is_alone and task.number == 2
            )
        )
    assert done == {number: TaskFailed("no answer within 0.3 s") if number == 2 else number for number in range(10)}


def test_timeout_counts_from_the_start_of_the_task():
    with LocalRunner(2) as runner:  # the ten tasks of a worker together exceed the timeout, but each takes far less
        pool = list(runner._pool)
        done = runner.as_completed(time.sleep, [0.3] * 20, timeout_for=lambda _: 2.4)
        assert dict(done) == dict.fromkeys(range(20))
        assert runner._pool == pool


def test_finished_task_does_not_time_out_while_the_caller_waits():
    with LocalRunner(2) as runner:
        pool = list(runner._pool)
        done = runner.as_completed(abs, range(6), timeout_for=lambda _: 1.5)
        results = [next(done)]
        time.sleep(1.8)
        assert dict([*results, *done]) == {number: number for number in range(6)}
        assert runner._pool == pool


@pytest.mark.parametrize("workers", [1, 2])
def test_task_out_of_memory_is_retried_and_then_fails(tmp_path, workers):
    with LocalRunner(workers) as runner:
        tasks = [Task(0, tmp_path, memory_errors=9), Task(1, tmp_path, memory_errors=2), Task(2, tmp_path)]
        assert dict(runner.as_completed(run_task, tasks)) == {0: TaskFailed("out of memory"), 1: 1, 2: 2}


@pytest.mark.parametrize("workers", [1, 2])
def test_isolated_task_runs_in_its_own_process_which_ends(workers):
    with LocalRunner(workers) as runner:
        pids = [
            pid for _, pid in sorted(runner.as_completed(pid_of, range(12), is_isolated=lambda number: number % 4 == 0))
        ]
        alone = pids[::4]
        assert len({os.getpid(), *alone}) == 4
        assert not set(alone) & {pid for number, pid in enumerate(pids) if number % 4}
        assert not any(is_alive(pid) for pid in alone)


def test_other_tasks_continue_during_an_isolated_task(tmp_path):
    with LocalRunner(2) as runner:
        tasks = [Task(0, tmp_path, wait_for="continue"), *(Task(number, tmp_path) for number in range(1, 20))]
        results = runner.as_completed(run_task, tasks, is_isolated=is_first)
        others = [next(results) for _ in range(19)]
        assert sorted(others) == [(number, number) for number in range(1, 20)]
        (tmp_path / "continue").touch()
        assert list(results) == [(0, 0)]


def test_isolated_tasks_run_one_at_a_time(tmp_path):
    with LocalRunner(3) as runner:
        tasks = [Task(number, tmp_path, is_exclusive=True) for number in range(5)]
        assert dict(runner.as_completed(run_task, tasks, is_isolated=lambda _: True)) == {
            number: number for number in range(5)
        }


@pytest.mark.parametrize("workers", [1, 2])
def test_isolated_task_that_dies_is_retried(tmp_path, workers):
    with LocalRunner(workers) as runner:
        tasks = [Task(0, tmp_path, deaths=2), Task(1, tmp_path, deaths=9), Task(2, tmp_path)]
        done = dict(runner.as_completed(run_task, tasks, is_isolated=lambda task: task.number < 2))
        assert (done[0], done[2]) == (0, 2)
        assert isinstance(done[1], TaskFailed)


def test_more_workers_may_die_than_spares_exist(tmp_path):
    with LocalRunner(2) as runner:
        tasks = [Task(number, tmp_path, deaths=1) for number in range(NUM_SPARES + 4)]
        assert dict(runner.as_completed(run_task, tasks)) == {number: number for number in range(NUM_SPARES + 4)}
        assert not runner._spares


def test_dead_worker_is_replaced_while_other_threads_run(tmp_path):
    release = threading.Event()
    with LocalRunner(2) as runner:
        other = threading.Thread(target=release.wait, args=(60,))
        other.start()
        try:
            done = runner.as_completed(kill_once, [tmp_path / str(number) for number in range(NUM_SPARES + 2)])
            assert dict(done) == dict.fromkeys(range(NUM_SPARES + 2))
        finally:
            release.set()
            other.join()


def test_two_maps_can_be_open_at_once():
    with LocalRunner(2) as runner:
        pairs = zip(runner.map(abs, range(0, -30, -1)), runner.map(square_slowly_at_zero, range(30)), strict=True)
        assert list(pairs) == [(number, number * number) for number in range(30)]


def test_abandoned_run_leaves_no_isolated_process(tmp_path):
    with LocalRunner(2) as runner:
        done = runner.as_completed(
            run_task, [Task(0, tmp_path, wait_for="never"), Task(1, tmp_path)], is_isolated=is_first
        )
        assert next(done) == (1, 1)
        alone = runner._isolated_worker.process.pid
        done.close()
        assert not is_alive(alone)
        assert dict(runner.as_completed(run_task, [Task(2, tmp_path)])) == {0: 2}


def test_errors_of_an_abandoned_run_are_ignored():
    with LocalRunner(2) as runner:
        next(runner.as_completed(fail_on_three, range(4)))
        assert list(runner.map(abs, range(20))) == list(range(20))


def test_small_source_uses_one_worker():
    assert num_workers("auto", 1000) == 1
    assert num_workers("auto", 1 << 40) == num_cores()
    assert num_workers(7, 0) == 7


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_exit_when_the_parent_is_killed():
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


def test_workers_are_spawned_while_other_threads_run():
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
def test_background_steps_run_while_a_worker_is_busy_or_immediately(tmp_path, workers):
    """The task waits for a file that exists only after the third background step."""

    def steps():
        yield from range(3)
        (tmp_path / "continue").touch()

    with LocalRunner(workers) as runner:
        runner.run_while_waiting(steps())
        assert (tmp_path / "continue").exists() is (workers == 1)
        assert list(runner.map(run_task, [Task(0, tmp_path, wait_for="continue")])) == [0]


def test_error_of_a_background_step_is_raised(tmp_path):
    def steps():
        yield
        raise OutputError("no space")

    with LocalRunner(2) as runner:
        runner.run_while_waiting(steps())
        with pytest.raises(OutputError, match="no space"):
            list(runner.map(square_slowly_at_zero, range(4)))
