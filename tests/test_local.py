import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from gristmill.errors import OutputError
from gristmill.runners import local
from gristmill.runners.local import LocalRunner, num_cores, num_workers


def slower_for_the_first(number):
    time.sleep(0.2 if number == 0 else 0)
    return number * number


def fail_on_three(number):
    if number == 3:
        raise OutputError("three")
    return number


def die(number):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_results_come_in_the_order_of_the_tasks(workers):
    with LocalRunner(workers) as runner:
        assert list(runner.map(slower_for_the_first, range(50))) == [number * number for number in range(50)]


def test_tasks_are_drawn_as_they_are_needed():
    drawn = []

    def tasks():
        for number in range(1000):
            drawn.append(number)
            yield number

    with LocalRunner(2) as runner:
        next(iter(runner.map(slower_for_the_first, tasks())))
        assert len(drawn) <= local.RESULTS_AHEAD_PER_WORKER * 2 + 1


def test_a_map_that_is_given_up_does_not_disturb_the_next():
    with LocalRunner(2) as runner:
        assert next(runner.map(slower_for_the_first, range(10))) == 0
        assert list(runner.map(slower_for_the_first, range(20))) == [number * number for number in range(20)]


def test_large_tasks_and_large_results_do_not_block_each_other():
    with LocalRunner(2) as runner:
        assert list(runner.map(len, [bytes(1 << 20)] * 20)) == [1 << 20] * 20
        assert [len(result) for result in runner.map(bytes, [1 << 20] * 20)] == [1 << 20] * 20


def test_a_worker_killed_while_it_answers_is_noticed():
    with pytest.raises(OutputError, match="a worker process died"), LocalRunner(2) as runner:
        results = runner.map(bytes, [1 << 26] * 8)
        next(results)
        for process, _ in runner._started:
            process.kill()
        list(results)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_a_task_is_ours_to_see(workers):
    with pytest.raises(OutputError, match="three"), LocalRunner(workers) as runner:
        list(runner.map(fail_on_three, range(10)))


def test_a_worker_that_dies_is_one_clear_line():
    with pytest.raises(OutputError, match="a worker process died"), LocalRunner(2) as runner:
        list(runner.map(die, range(4)))


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
        "    print(*[worker.process.pid for worker in runner._started], flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
        parent.wait()
    assert len(workers) == 2
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
        assert local._start_method() == "spawn"
        with LocalRunner(2) as runner:
            assert list(runner.map(abs, [-1, -2, -3])) == [1, 2, 3]
    finally:
        release.set()
        other.join()
