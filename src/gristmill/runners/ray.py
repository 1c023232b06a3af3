"""Run tasks on a Ray cluster: an existing cluster, or a local cluster that exists only while the runner is open.

All machines work on the same files, so the files must be on shared storage. This is checked before any task starts:
each node must see the same probes as this machine, and this machine must see a file that the node writes.

Each task runs as a Ray task that sends two answers. The first answer reports that the task has started, and its timeout
then begins. The second answer is the result. Ray's own retries are off, because `Job` counts attempts and retries
tasks.
"""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Literal, Self

from gristmill.core.errors import InputError, MissingExtraError, OutputError
from gristmill.runners.local import num_cores
from gristmill.runners.probe import Probe, ProbeResult, check_probes, require_probes, require_usable_node
from gristmill.runners.runner import (
    OUT_OF_MEMORY,
    QUEUED_TASKS_PER_WORKER,
    Result,
    Runner,
    Task,
    TaskFailed,
    no_answer_text,
)
from gristmill.runners.tasks import Job, Run, unpickle_function
from gristmill.runners.worker import STOP_TIMEOUT_SECONDS, Answer, make_picklable

CONNECT_TIMEOUT_SECONDS = 10.0
PROBE_TIMEOUT_SECONDS = 120.0
"""Timeout for checking the probes on all nodes. The first task on a node has to start a process there."""
CPU_COUNT_INTERVAL_SECONDS = 2.0
"""Interval at which the CPUs of the cluster are counted again, because nodes may join or leave."""
QUIET_ENVIRONMENT = {
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # otherwise Ray prints worker events to our stdout
    "RAY_USAGE_STATS_ENABLED": "0",  # no usage reports
}


def import_ray() -> Any:
    """Import Ray, or raise with the install command if it is missing."""
    with _environment_defaults(QUIET_ENVIRONMENT):
        try:
            import ray  # noqa: PLC0415 - slow to import, and an extra
            import ray.exceptions  # noqa: PLC0415
            import ray.util.scheduling_strategies  # noqa: PLC0415
        except ImportError:
            raise MissingExtraError(
                "--runner ray needs the package ray. Install it: pip install 'gristmill[ray]'"
            ) from None
    return ray


class RayRunner(Runner):
    """Runner on the Ray cluster at `address`. If `address` is None, a local cluster is started.

    `workers` is the maximum number of tasks that run at once. "auto" stands for the number of CPUs in the cluster.
    """

    def __init__(self, address: str | None, probes: Sequence[Probe], workers: int | Literal["auto"]) -> None:
        self.address, self._probes, self._requested_workers = address, tuple(probes), workers
        self.workers = workers if isinstance(workers, int) else 1
        self._ray: Any = None
        self._owns_connection = False
        self._num_cpus, self._cpus_counted_at = 0, float("-inf")

    def __enter__(self) -> Self:
        self._ray = import_ray()
        try:
            with _environment_defaults(QUIET_ENVIRONMENT), _signal_handlers_preserved():
                self._connect()
            if self._requested_workers == "auto":
                self.workers = max(1, self._count_cpus())
            self._check_nodes()
        except BaseException:
            self._disconnect()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disconnect()

    def as_completed(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        timeout_for: Callable[[Task], float] | None = None,
        is_isolated: Callable[[Task], bool] | None = None,
    ) -> Generator[tuple[int, Result | TaskFailed], None, None]:
        run = Run(function, tasks, timeout_for, is_isolated)
        in_flight = _JobsInFlight(self._ray, self._ray.put((self._ray.cloudpickle.dumps(function), self._probes)))
        try:
            while True:
                while in_flight.num_jobs < self._max_in_flight() and (job := run.next_job()) is not None:
                    in_flight.start(job)
                if run.isolated and not in_flight.has_isolated:
                    in_flight.start(run.isolated.popleft())
                if run.error is not None:
                    raise run.error
                if run.done:
                    yield run.done.popleft()
                elif in_flight.num_jobs:
                    in_flight.collect_answers()
                else:
                    return
        finally:
            run.is_abandoned = True
            in_flight.cancel_all()

    def _max_in_flight(self) -> int:
        """Return the maximum number of tasks that Ray may run or queue.

        If all CPUs are used, the maximum is twice the number of CPUs, so that no CPU waits. Otherwise it is the number
        of workers.
        """
        num_cpus = self._count_cpus()
        if self._requested_workers != "auto" and self._requested_workers < num_cpus:
            return self._requested_workers
        return QUEUED_TASKS_PER_WORKER * max(1, num_cpus)

    def _count_cpus(self) -> int:
        if time.monotonic() - self._cpus_counted_at >= CPU_COUNT_INTERVAL_SECONDS:
            self._num_cpus = int(self._ray.cluster_resources().get("CPU", 0))
            self._cpus_counted_at = time.monotonic()
        return self._num_cpus

    def _connect(self) -> None:
        if self._ray.is_initialized():  # for example by a notebook: use its connection and keep it open
            return
        logging.getLogger("ray").setLevel(logging.ERROR)
        quiet = {"include_dashboard": False, "log_to_driver": False, "configure_logging": False}
        if self.address is None:
            num_cpus = num_cores() if self._requested_workers == "auto" else self._requested_workers
            self._ray.init("local", num_cpus=num_cpus, **quiet)
        else:
            _require_reachable(self._ray, self.address)
            try:
                self._ray.init(self.address, **quiet)
            except (OSError, RuntimeError, ValueError, self._ray.exceptions.RayError) as error:
                raise InputError(f"cannot connect to Ray at {self.address}: {_first_line(error)}") from None
        self._owns_connection = True

    def _disconnect(self) -> None:
        """Close the connection if this runner opened it. This also stops a cluster that this runner started."""
        if self._owns_connection:
            with _signal_handlers_preserved():
                self._ray.shutdown()
        self._owns_connection = False

    def _check_nodes(self) -> None:
        """Raise if a node with CPUs cannot run this version of gristmill or does not share the files."""
        nodes = [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        if not nodes:
            raise InputError("no node of the Ray cluster has a CPU. Add a node with CPUs.")
        on_node = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        remote_check = self._ray.remote(check_probes)
        pending = {
            node["NodeManagerAddress"] + "/" + node["NodeID"]: remote_check.options(
                num_cpus=0, scheduling_strategy=on_node(node_id=node["NodeID"], soft=False)
            ).remote(self._probes)
            for node in nodes
        }
        give_up_at = time.monotonic() + PROBE_TIMEOUT_SECONDS
        for name, reference in sorted(pending.items()):
            address = name.partition("/")[0]
            result = self._probe_result(reference, address, give_up_at - time.monotonic())
            if result is not None:
                require_usable_node(result, address, self._probes)

    def _probe_result(self, reference: Any, address: str, seconds: float) -> ProbeResult | None:
        """Return the result of a node, or None if the node has left the cluster."""
        errors = self._ray.exceptions
        try:
            return ProbeResult(*self._ray.get(reference, timeout=max(0.0, seconds)))
        except (errors.NodeDiedError, errors.TaskUnschedulableError):
            return None
        except errors.GetTimeoutError:
            raise InputError(f"node {address} did not answer within {PROBE_TIMEOUT_SECONDS:g} s.") from None
        except errors.RayTaskError as error:  # gristmill is not installed on the node
            raise InputError(
                f"node {address} cannot run gristmill ({type(error.cause).__name__}). Install it on all machines."
            ) from None
        except errors.RayError as error:
            raise InputError(f"node {address} cannot be used: {_first_line(error)}") from None


class _JobsInFlight:
    """Jobs of one run that Ray is running or has queued."""

    def __init__(self, ray: Any, shared: Any) -> None:
        self._ray, self._shared = ray, shared
        self._remote_task = ray.remote(num_returns="streaming", max_retries=0)(_run_on_node)
        self._remote_isolated_task = ray.remote(num_returns="streaming", max_retries=0, max_calls=1)(_run_on_node)
        """The same function as a Ray task whose process ends after one call."""
        self._jobs: dict[Any, Job] = {}
        self._deadlines: dict[Any, float] = {}
        """Deadlines of the jobs that have started."""

    @property
    def num_jobs(self) -> int:
        return len(self._jobs)

    @property
    def has_isolated(self) -> bool:
        return any(job.is_isolated for job in self._jobs.values())

    def start(self, job: Job) -> None:
        stream = (self._remote_isolated_task if job.is_isolated else self._remote_task).remote(self._shared, job.task)
        self._jobs[stream] = job

    def collect_answers(self) -> None:
        """Wait a limited time for at least one answer, and handle every answer and timeout."""
        streams = list(self._jobs)
        deadline = min(self._deadlines.values(), default=float("inf"))
        seconds = min(CPU_COUNT_INTERVAL_SECONDS, max(0.0, deadline - time.monotonic()))
        ready, _ = self._ray.wait(streams, num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=0)
        for stream in ready:
            self._collect_answer(stream)
        now = time.monotonic()
        for stream in [
            stream for stream, deadline in self._deadlines.items() if deadline <= now and stream not in ready
        ]:
            job = self._remove(stream)
            self._cancel([stream])
            job.fail(no_answer_text(job.timeout_seconds))

    def _collect_answer(self, stream: Any) -> None:
        errors = self._ray.exceptions
        try:
            answer = self._ray.get(next(stream))
        except errors.LocalRayletDiedError:
            raise OutputError(
                "the connection to the Ray cluster was lost. Completed work is kept: run the same command again to "
                "resume."
            ) from None
        except errors.RayTaskError as error:  # raised outside the function, for example if the result cannot be pickled
            self._remove(stream).finish(None, error.cause or RuntimeError(str(error)))
        except (StopIteration, errors.RayError) as error:
            self._remove(stream).fail(_reason(errors, error))
        else:
            if answer is None:
                self._deadlines[stream] = time.monotonic() + self._jobs[stream].timeout_seconds
            elif isinstance(answer.error, MemoryError):
                self._remove(stream).fail(OUT_OF_MEMORY)
            else:
                self._remove(stream).finish(*answer)

    def _remove(self, stream: Any) -> Job:
        self._deadlines.pop(stream, None)
        return self._jobs.pop(stream)

    def cancel_all(self) -> None:
        """Cancel all jobs, so that none writes files after the run has ended."""
        if self._ray.is_initialized():
            self._cancel(list(self._jobs))
        self._jobs.clear()

    def _cancel(self, streams: list[Any]) -> None:
        for stream in streams:
            with suppress(self._ray.exceptions.RayError):
                self._ray.cancel(stream, force=True)
        if streams:
            self._ray.wait(streams, num_returns=len(streams), timeout=STOP_TIMEOUT_SECONDS)


def _run_on_node(shared: tuple[bytes, tuple[Probe, ...]], task: Any) -> Iterator[Answer | None]:
    """Run a task on a node. Yield None when the task starts, and the answer when it ends."""
    yield None
    function, probes = shared
    try:
        require_probes(probes, _own_address)
        answer = Answer(unpickle_function(function)(task), None)
    except Exception as error:  # noqa: BLE001 - it is raised again in the driver
        answer = Answer(None, make_picklable(error))
    yield answer


def _own_address() -> str:
    return str(import_ray().util.get_node_ip_address())


def _reason(errors: Any, error: Exception) -> str:
    if isinstance(error, errors.OutOfMemoryError):
        return OUT_OF_MEMORY
    if isinstance(error, errors.NodeDiedError):
        return "its node died"
    if isinstance(error, errors.WorkerCrashedError):
        return "its worker died, possibly because it ran out of memory"
    return f"its answer was lost: {type(error).__name__}"


def _require_reachable(ray: Any, address: str) -> None:
    """Raise if no server listens at the address. Ray itself would retry for minutes and then end this process."""
    host, _, port = _resolve(ray, address).rpartition(":")
    if not (host and port.isdecimal()) or "/" in host:
        raise InputError(f"the address of a Ray cluster must be HOST:PORT or auto, got {address}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"no Ray cluster answers at {address}: {_first_line(error)}") from None


def _resolve(ray: Any, address: str) -> str:
    """Resolve an address to HOST:PORT as Ray does. Ray treats "auto" and localhost specially."""
    try:
        return str(ray._private.services.canonicalize_bootstrap_address(address))  # noqa: SLF001 - there is no public function
    except ConnectionError:
        raise InputError("no Ray cluster is running on this machine. Start one: ray start --head") from None
    except (OSError, ValueError):
        return address


def _first_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def _environment_defaults(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables during the `with` block, except those that the user has set."""
    defaults = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(defaults)
    try:
        yield
    finally:
        for name in defaults:
            os.environ.pop(name, None)


@contextmanager
def _signal_handlers_preserved() -> Iterator[None]:
    """Restore the signal handlers after the `with` block.

    Ray installs handlers that would end this process before our callers can clean up.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
