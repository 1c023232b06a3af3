"""RayRunner on a cluster of two nodes with one CPU each, both on this machine."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import gristmill
from gristmill import Config, FimConfig, OutputConfig, RunConfig, build
from gristmill.core.errors import ConfigError, InputError, MissingExtraError, OutputError
from gristmill.pipeline import prepare as prepare_module
from gristmill.pipeline.prepare import prepare
from gristmill.pipeline.separate_steps import Shard, decide_all, finish_all, prepare_shard, shape_shard
from gristmill.runners import probe
from gristmill.runners.local import LocalRunner
from gristmill.runners.probe import ProbeResult, make_probe
from gristmill.runners.ray import RayRunner, import_ray
from gristmill.runners.runner import QUEUED_TASKS_PER_WORKER, TaskFailed
from support.builds import everything, make, parts, refusal, run
from support.codebert_with import MARKERS, codebert_with

ray = import_ray()

NUM_NODES = 2
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    from ray.cluster_utils import Cluster

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # nodes cannot import the tests
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))  # Ray writes to the home folder
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setattr(signal, "signal", lambda *_: None)  # a cluster in this process would install a SIGTERM handler
        cluster = Cluster(
            initialize_head=True,
            shutdown_at_exit=False,
            head_node_args={
                **NODE,
                "include_dashboard": False,
                "_system_config": {"health_check_period_ms": 500, "health_check_failure_threshold": 4},
            },
        )
        try:
            for _ in range(NUM_NODES - 1):
                cluster.add_node(**NODE)
            cluster.wait_for_nodes()
            yield cluster
        finally:
            cluster.shutdown()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    (folder / "probe").write_bytes(b"seen" * 100_000)
    return folder


@pytest.fixture(scope="module")
def runner(cluster, shared):
    """Runner that tests share. Tests that open another connection are at the end of this file."""
    with RayRunner(cluster.address, [make_probe(shared / "probe")], "auto") as runner:
        yield runner


def square(number):
    return number * number


def mark(folder, name):
    (folder / f"{name}-{time.monotonic_ns()}-{os.getpid()}").touch()


def num_marks(folder, name):
    return len(list(folder.glob(f"{name}-*")))


def die_before_returning(task):
    """Kill the worker `num_deaths` times before returning."""
    folder, number, num_deaths = task
    if num_marks(folder, number) < num_deaths:
        mark(folder, number)
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def run_out_of_memory_at_one(number):
    if number == 1:
        raise MemoryError
    return number


def hang_at_one(number):
    time.sleep(600 if number == 1 else 0)
    return number


def pid_of(_):
    return os.getpid()


def wait_for_go(folder):
    mark(folder, "started")
    deadline = time.monotonic() + 240
    while not (folder / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def raise_error(error):
    raise error


def test_results_equal_those_of_local_processes(runner):
    assert runner.workers == NUM_NODES
    with LocalRunner(2) as local:
        assert list(runner.map(square, range(100))) == list(local.map(square, range(100)))


def test_large_results_arrive_complete(runner):
    assert [len(result) for result in runner.map(bytes, [1 << 22] * 8)] == [1 << 22] * 8


def test_killed_worker_is_replaced(runner, tmp_path):
    tasks = [(tmp_path, number, {2: 1, 5: 9}.get(number, 0)) for number in range(10)]
    done = dict(runner.as_completed(die_before_returning, tasks))
    failed = TaskFailed("its worker died, possibly because it ran out of memory")
    assert done == {number: failed if number == 5 else number for number in range(10)}
    assert (num_marks(tmp_path, 2), num_marks(tmp_path, 5)) == (1, 3)


def test_task_out_of_memory_fails(runner):
    assert dict(runner.as_completed(run_out_of_memory_at_one, range(3))) == {0: 0, 1: TaskFailed("out of memory"), 2: 2}


def test_hanging_task_is_killed(runner):
    done = dict(runner.as_completed(hang_at_one, range(4), timeout_for=lambda number: 0.3 if number == 1 else 60))
    assert done == {0: 0, 1: TaskFailed("no answer within 0.3 s"), 2: 2, 3: 3}


def test_isolated_task_ends_its_process(runner):
    done = dict(runner.as_completed(pid_of, range(9), is_isolated=lambda number: number < 3))
    alone = {done[number] for number in range(3)}
    assert len(alone) == 3
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in alone) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in alone)


def test_no_more_tasks_are_drawn_than_can_be_queued(runner, tmp_path):
    drawn = []

    def tasks():
        for _ in range(30):
            drawn.append(1)
            yield tmp_path

    def watch():
        deadline = time.monotonic() + 120  # a worker starts within seconds on an idle machine
        while num_marks(tmp_path, "started") < NUM_NODES and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        seen.extend([num_marks(tmp_path, "started"), len(drawn)])
        (tmp_path / "go").touch()

    seen = []
    watcher = threading.Thread(target=watch)
    watcher.start()
    assert dict(runner.as_completed(wait_for_go, tasks())) == dict.fromkeys(range(30))
    watcher.join()
    assert seen == [NUM_NODES, QUEUED_TASKS_PER_WORKER * NUM_NODES]


@pytest.mark.parametrize(
    "error", [OutputError("no room. Try less."), FileNotFoundError(errno.ENOENT, "gone", "a.py"), ValueError("odd")]
)
def test_error_of_a_task_keeps_its_type_and_message(runner, error):
    with pytest.raises(type(error)) as caught:
        list(runner.map(raise_error, [error]))
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    assert getattr(caught.value, "errno", None) == getattr(error, "errno", None)


def test_result_that_cannot_be_pickled_is_an_error(runner):
    with pytest.raises(TypeError, match="lock"):
        list(runner.map(lambda _: threading.Lock(), [1]))


def test_abandoned_run_does_not_affect_the_next(runner, tmp_path):
    done = runner.as_completed(square, range(50))
    next(done)
    done.close()
    assert list(runner.map(square, range(10))) == [number * number for number in range(10)]


# Complete builds.


def prepare_with_failures(context, batch):
    """Prepare a batch, but kill the worker once if the file `die` exists, and hang on the node named in `stuck_on`."""
    folder = context.folder.parent
    if batch.index == 3 and (folder / "die").exists():
        (folder / "die").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    stuck_on = folder / "stuck_on"
    if stuck_on.exists() and ray.get_runtime_context().get_node_id() == stuck_on.read_text():
        mark(folder, "stuck")
        time.sleep(600)
    deadline = time.monotonic() + 20
    while stuck_on.exists() and not num_marks(folder, "stuck") and time.monotonic() < deadline:
        time.sleep(0.05)  # wait until the node in stuck_on has a batch
    return prepare(context, batch)


def ray_config(source, cluster, out, **sections):
    run = RunConfig(runner="ray", ray_address=cluster.address, batch_bytes=30_000)
    return Config(**{"sources": [str(source)], "out": str(out), "run": run, **sections})


@pytest.fixture(scope="module")
def source(tmp_path_factory, corpus):
    root = tmp_path_factory.mktemp("source") / "stdlib"
    for package in ("importlib", "json", "logging"):
        shutil.copytree(corpus / package, root / package)
    return root


@pytest.mark.parametrize("compress", ["none", "zstd"])
def test_build_on_nodes_equals_a_local_build(cluster, runner, source, tmp_path, compress):
    output = OutputConfig(compress=compress, shard_bytes=300_000)
    more = {"output": output, "tokenizer": codebert_with(MARKERS, tmp_path / "tokenizer")}
    more |= {"fim": FimConfig(rate=0.5)} if compress == "zstd" else {}
    manifest = build(ray_config(source, cluster, tmp_path / "out", **more))
    assert manifest.run.workers >= NUM_NODES  # another test may have added a node
    make(source, tmp_path / "local", **more)
    assert everything(tmp_path / "out") == everything(tmp_path / "local")
    (source / "new.py").write_text("x = 1\n" * 30)
    before = parts(tmp_path / "out")
    build(ray_config(source, cluster, tmp_path / "out", **more))
    (source / "new.py").unlink()
    assert 0 < len(parts(tmp_path / "out").items() - before.items()) <= 4
    assert len(before.items() - parts(tmp_path / "out").items()) <= (compress == "zstd"), (
        "only the part with fill-in-the-middle rows may be replaced"
    )


def test_build_survives_the_death_of_a_worker_and_of_a_node(cluster, runner, source, tmp_path, monkeypatch):
    make(source, tmp_path / "local")
    node = cluster.add_node(**NODE)
    cluster.wait_for_nodes()
    (tmp_path / "die").touch()
    (tmp_path / "stuck_on").write_text(node.node_id)

    until = time.time() + 80

    def remove():
        while not num_marks(tmp_path, "stuck") and time.time() < until:
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)

    remover = threading.Thread(target=remove)
    remover.start()
    monkeypatch.setattr(prepare_module, "prepare", prepare_with_failures)
    build(ray_config(source, cluster, tmp_path / "out"))
    remover.join()
    assert not (tmp_path / "die").exists()
    assert num_marks(tmp_path, "stuck")
    assert everything(tmp_path / "out") == everything(tmp_path / "local")


def test_manual_steps_can_each_run_on_nodes(cluster, runner, source, tmp_path):
    config = ray_config(source, cluster, tmp_path / "out")
    prepare_shard(config, Shard(1, 1))
    decide_all(config)
    shape_shard(config, Shard(1, 1))
    finish_all(config)
    make(source, tmp_path / "local")
    assert everything(tmp_path / "out") == everything(tmp_path / "local")


def test_ray_address_without_ray_runner_is_refused(source, tmp_path):
    with pytest.raises(ConfigError, match=r"^--ray-address needs --runner ray\."):
        RunConfig(ray_address="auto")
    code, line = refusal(run("build", source, "--out", tmp_path / "out", "--ray-address", "127.0.0.1:6379"))
    assert (code, line) == (2, "--ray-address needs --runner ray. Add --runner ray, or leave out --ray-address.")
    assert not any(tmp_path.iterdir())


def test_every_process_checks_the_probes_before_its_first_task(runner, shared, monkeypatch):
    (shared / "later").write_bytes(b"later")
    monkeypatch.setattr(runner, "_probes", (make_probe(shared / "later"),))
    (shared / "later").unlink()
    with pytest.raises(InputError, match=r"^node \S+ does not see '.*later': sources and the work folder must"):
        list(runner.map(square, range(4)))


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_bytes(b"other")])
def test_node_that_does_not_see_a_probe_is_refused(runner, cluster, shared, change):
    (shared / "second").write_bytes(b"here")
    probes = [make_probe(shared / "probe"), make_probe(shared / "second")]
    change(shared / "second")
    with pytest.raises(InputError) as caught, RayRunner(cluster.address, probes, "auto"):
        pass
    assert str(caught.value) == (
        f"node {ray.util.get_node_ip_address()} does not see '{shared / 'second'}': "
        "sources and the work folder must be in folders that all machines share."
    )


def test_probes_leave_no_files(runner, shared):
    with RayRunner(None, [make_probe(shared / "probe")], 2):
        pass
    assert not list(shared.glob(".probe*"))


def test_node_with_a_different_version_is_refused(runner, shared, monkeypatch):
    monkeypatch.setattr(probe, "__version__", "0.0.0")
    with pytest.raises(
        InputError, match=r"^node \S+ has gristmill .*, but this machine has 0\.0\.0\. Install the same"
    ):
        RayRunner(None, [make_probe(shared / "probe")], "auto").__enter__()


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that is never writable")
def test_node_that_cannot_write_is_refused(runner):
    with pytest.raises(OutputError, match=r"^node \S+ cannot write to '/proc': "):
        RayRunner(None, [make_probe("/proc/version")], "auto").__enter__()


def test_files_written_by_a_node_must_be_visible_here(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "SECONDS_TO_APPEAR", 0.2)
    (tmp_path / "probe").touch()
    result = ProbeResult(gristmill.__version__, None, str(tmp_path / "elsewhere"), None)
    with pytest.raises(
        OutputError, match=r"files that node 10\.0\.0\.7 writes to '.*' are not visible on this machine"
    ):
        probe.require_usable_node(result, "10.0.0.7", [make_probe(tmp_path / "probe")])


def test_existing_connection_is_kept_open(runner, shared):
    with RayRunner(None, [], 2) as second:
        assert list(second.map(square, range(5))) == [0, 1, 4, 9, 16]
    assert list(runner.map(square, range(5))) == [0, 1, 4, 9, 16]


def run_python(code, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_fewer_workers_than_cpus_limit_the_running_tasks(cluster, shared, tmp_path):
    code = """
        import sys, time, os
        from gristmill.runners.ray import RayRunner
        from gristmill.runners.probe import make_probe

        def most_at_once(folder):
            name = f"{folder}/{time.monotonic_ns()}"
            open(name, "x").close()
            time.sleep(0.2)
            most = len(os.listdir(folder))
            os.unlink(name)
            return most

        with RayRunner("auto", [make_probe(sys.argv[1])], 2) as runner:
            print(runner.workers, max(runner.map(most_at_once, [sys.argv[2]] * 10)))
    """
    done = run_python(code, shared / "probe", tmp_path, RAY_ADDRESS=cluster.address)
    assert (done.stdout, done.stderr, done.returncode) == ("2 2\n", "", 0)


def test_without_an_address_a_cluster_is_started_and_stopped(tmp_path):
    code = """
        import os, signal, sys, psutil
        from gristmill.runners.ray import RayRunner
        from gristmill.runners.probe import make_probe

        def die_at_three(number):
            if number == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return number

        handlers = [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]
        with RayRunner(None, [make_probe(sys.argv[1])], 2) as runner:
            assert [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)] == handlers
            results = dict(runner.as_completed(die_at_three, range(5)))
            started = psutil.Process().children(recursive=True)
            assert started
        print(sorted(number for number, result in results.items() if number == result))
        _, alive = psutil.wait_procs(started, timeout=20)
        assert not alive, alive
    """
    (tmp_path / "probe").touch()
    done = run_python(code, tmp_path / "probe", HOME=str(tmp_path))
    assert (done.stdout, done.stderr, done.returncode) == ("[0, 1, 2, 4]\n", "", 0)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1: Connection refused"),
        ("ray://127.0.0.1:1", "the address of a Ray cluster must be HOST:PORT or auto, got ray://127.0.0.1:1"),
        ("nowhere", "the address of a Ray cluster must be HOST:PORT or auto, got nowhere"),
    ],
)
def test_unreachable_address_is_a_one_line_error(address, message, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(InputError) as caught:
        RayRunner(address, [], "auto").__enter__()
    assert str(caught.value) == message


def test_without_ray_the_error_has_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"needs the package ray\. Install it: pip install 'gristmill\[ray\]'"):
        RayRunner(None, [], "auto").__enter__()
