"""Runs tasks over a Ray cluster: one that runs already, or one started here for as long as the runner is open.

Every machine works on the same files, so they must lie where all machines see them. That is tried before anything is
done: each node must see the probes as they are here, and what it writes beside the first must be seen here.

A task is a Ray task of two answers: that it starts, from when on its time counts, and what came of it. Ray tries
nothing again by itself, so that tries are counted in one place.
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
from gristmill.runners.probe import Probe, Sight, look, refuse, refuse_unseen
from gristmill.runners.runner import (
    OUT_OF_MEMORY,
    TASKS_AHEAD_PER_WORKER,
    Result,
    Runner,
    Task,
    TaskFailed,
    no_answer_within,
)
from gristmill.runners.tasks import Job, Run, unpacked
from gristmill.runners.worker import SECONDS_TO_END, Answer, to_be_raised_again

SECONDS_TO_CONNECT = 10.0
SECONDS_TO_LOOK = 120.0
"""For the probes of all nodes together; the first task on a node starts a process there."""
SECONDS_BETWEEN_COUNTS = 2.0
"""Of the cluster's CPUs: nodes come and go."""
QUIET = {
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # else what happens to workers is printed to our stdout
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anybody
}


def import_ray() -> Any:
    with _environment(QUIET):
        try:
            import ray  # noqa: PLC0415 - slow to import, and not always there
            import ray.exceptions  # noqa: PLC0415
            import ray.util.scheduling_strategies  # noqa: PLC0415
        except ImportError:
            raise MissingExtraError(
                "a build over several machines needs ray. Install it: pip install 'gristmill[ray]'"
            ) from None
    return ray


class RayRunner(Runner):
    """`workers` is how many tasks may run at once: as many as the cluster has CPUs ("auto"), or fewer."""

    def __init__(self, address: str | None, probes: Sequence[Probe], workers: int | Literal["auto"]) -> None:
        self.address, self._probes, self._wanted = address, tuple(probes), workers
        self.workers = workers if isinstance(workers, int) else 1
        self._ray: Any = None
        self._is_connected_here = False
        self._num_cpus, self._counted_at = 0, float("-inf")

    def __enter__(self) -> Self:
        self._ray = import_ray()
        try:
            with _environment(QUIET), _signal_handlers_kept():
                self._connect()
            if self._wanted == "auto":
                self.workers = max(1, self._count_cpus())
            self._look_at_nodes()
        except BaseException:
            self._disconnect()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disconnect()

    def as_done(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        seconds_for: Callable[[Task], float] | None = None,
        is_alone: Callable[[Task], bool] | None = None,
    ) -> Generator[tuple[int, Result | TaskFailed], None, None]:
        run = Run(function, tasks, seconds_for, is_alone)
        flight = _Flight(self._ray, self._ray.put((self._ray.cloudpickle.dumps(function), self._probes)))
        try:
            while True:
                while flight.num_jobs < self._max_in_flight() and (job := run.next_job()) is not None:
                    flight.start(job)
                if run.alone and not flight.has_alone:
                    flight.start(run.alone.popleft())
                if run.error is not None:
                    raise run.error
                if run.done:
                    yield run.done.popleft()
                elif flight.num_jobs:
                    flight.take_answers()
                else:
                    return
        finally:
            run.is_given_up = True
            flight.cancel()

    def _max_in_flight(self) -> int:
        """All CPUs are kept busy from a queue as long as they are; fewer workers are as many tasks, and no queue."""
        num_cpus = self._count_cpus()
        if self._wanted != "auto" and self._wanted < num_cpus:
            return self._wanted
        return TASKS_AHEAD_PER_WORKER * max(1, num_cpus)

    def _count_cpus(self) -> int:
        if time.monotonic() - self._counted_at >= SECONDS_BETWEEN_COUNTS:
            self._num_cpus = int(self._ray.cluster_resources().get("CPU", 0))
            self._counted_at = time.monotonic()
        return self._num_cpus

    def _connect(self) -> None:
        if self._ray.is_initialized():  # by a notebook, say: its connection serves, and stays
            return
        logging.getLogger("ray").setLevel(logging.ERROR)
        quiet = {"include_dashboard": False, "log_to_driver": False, "configure_logging": False}
        if self.address is None:
            num_cpus = num_cores() if self._wanted == "auto" else self._wanted
            self._ray.init("local", num_cpus=num_cpus, **quiet)
        else:
            _refuse_unreachable(self._ray, self.address)
            try:
                self._ray.init(self.address, **quiet)
            except (OSError, RuntimeError, ValueError, self._ray.exceptions.RayError) as error:
                raise InputError(f"cannot connect to Ray at {self.address}: {_first_line(error)}") from None
        self._is_connected_here = True

    def _disconnect(self) -> None:
        """Ends a cluster that was started here; any other goes on."""
        if self._is_connected_here:
            with _signal_handlers_kept():
                self._ray.shutdown()
        self._is_connected_here = False

    def _look_at_nodes(self) -> None:
        """Each node that runs tasks must have what the tasks need."""
        nodes = [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        if not nodes:
            raise InputError("no node of the Ray cluster has a CPU for us.")
        on_node = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        remote_look = self._ray.remote(look)
        sights = {
            node["NodeManagerAddress"] + "/" + node["NodeID"]: remote_look.options(
                num_cpus=0, scheduling_strategy=on_node(node_id=node["NodeID"], soft=False)
            ).remote(self._probes)
            for node in nodes
        }
        give_up_at = time.monotonic() + SECONDS_TO_LOOK
        for name, sight in sorted(sights.items()):
            address = name.partition("/")[0]
            seen = self._sight(sight, address, give_up_at - time.monotonic())
            if seen is not None:
                refuse(seen, address, self._probes)

    def _sight(self, sight: Any, address: str, seconds: float) -> Sight | None:
        """None where the node is gone meanwhile."""
        errors = self._ray.exceptions
        try:
            return Sight(*self._ray.get(sight, timeout=max(0.0, seconds)))
        except (errors.NodeDiedError, errors.TaskUnschedulableError):
            return None
        except errors.GetTimeoutError:
            raise InputError(f"node {address} did not answer within {SECONDS_TO_LOOK:g} s.") from None
        except errors.RayTaskError as error:  # there is no gristmill to take the task
            raise InputError(
                f"node {address} cannot run gristmill ({type(error.cause).__name__}): install it on all machines."
            ) from None
        except errors.RayError as error:
            raise InputError(f"node {address} cannot be used: {_first_line(error)}") from None


class _Flight:
    """The jobs of one run that Ray has."""

    def __init__(self, ray: Any, shared: Any) -> None:
        self._ray, self._shared = ray, shared
        self._do = ray.remote(num_returns="streaming", max_retries=0)(_do)
        self._do_alone = ray.remote(num_returns="streaming", max_retries=0, max_calls=1)(_do)
        """After one call the process ends."""
        self._jobs: dict[Any, Job] = {}
        self._due_at: dict[Any, float] = {}
        """Of those that have started."""

    @property
    def num_jobs(self) -> int:
        return len(self._jobs)

    @property
    def has_alone(self) -> bool:
        return any(job.is_alone for job in self._jobs.values())

    def start(self, job: Job) -> None:
        stream = (self._do_alone if job.is_alone else self._do).remote(self._shared, job.task)
        self._jobs[stream] = job

    def take_answers(self) -> None:
        """Waits for one at least, or a while."""
        streams = list(self._jobs)
        due_at = min(self._due_at.values(), default=float("inf"))
        seconds = min(SECONDS_BETWEEN_COUNTS, max(0.0, due_at - time.monotonic()))
        ready, _ = self._ray.wait(streams, num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=0)
        for stream in ready:
            self._take_answer(stream)
        now = time.monotonic()
        for stream in [stream for stream, due_at in self._due_at.items() if due_at <= now and stream not in ready]:
            job = self._dismiss(stream)
            self._end([stream])
            job.fail(no_answer_within(job.seconds))

    def _take_answer(self, stream: Any) -> None:
        errors = self._ray.exceptions
        try:
            answer = self._ray.get(next(stream))
        except errors.LocalRayletDiedError:
            raise OutputError("the connection to the Ray cluster is lost.") from None
        except errors.RayTaskError as error:  # outside of the function: a result that cannot be pickled
            self._dismiss(stream).answer(None, error.cause or RuntimeError(str(error)))
        except (StopIteration, errors.RayError) as error:
            self._dismiss(stream).fail(_reason(errors, error))
        else:
            if answer is None:
                self._due_at[stream] = time.monotonic() + self._jobs[stream].seconds
            elif isinstance(answer.error, MemoryError):
                self._dismiss(stream).fail(OUT_OF_MEMORY)
            else:
                self._dismiss(stream).answer(*answer)

    def _dismiss(self, stream: Any) -> Job:
        self._due_at.pop(stream, None)
        return self._jobs.pop(stream)

    def cancel(self) -> None:
        """What nobody wants any more must not go on to write."""
        if self._ray.is_initialized():
            self._end(list(self._jobs))
        self._jobs.clear()

    def _end(self, streams: list[Any]) -> None:
        for stream in streams:
            with suppress(self._ray.exceptions.RayError):
                self._ray.cancel(stream, force=True)
        if streams:
            self._ray.wait(streams, num_returns=len(streams), timeout=SECONDS_TO_END)


def _do(shared: tuple[bytes, tuple[Probe, ...]], task: Any) -> Iterator[Answer | None]:
    """On a node: says that it starts, then what came of it."""
    yield None
    function, probes = shared
    try:
        refuse_unseen(probes, _address_here)
        answer = Answer(unpacked(function)(task), None)
    except Exception as error:  # noqa: BLE001 - it is raised again in the driver
        answer = Answer(None, to_be_raised_again(error))
    yield answer


def _address_here() -> str:
    return str(import_ray().util.get_node_ip_address())


def _reason(errors: Any, error: Exception) -> str:
    if isinstance(error, errors.OutOfMemoryError):
        return OUT_OF_MEMORY
    if isinstance(error, errors.NodeDiedError):
        return "its node died"
    if isinstance(error, errors.WorkerCrashedError):
        return "its worker died, likely for want of memory"
    return f"its answer was lost: {type(error).__name__}"


def _refuse_unreachable(ray: Any, address: str) -> None:
    """Ray itself would try for minutes, and then end this process."""
    host, _, port = _resolved(ray, address).rpartition(":")
    if not (host and port.isdecimal()) or "/" in host:
        raise InputError(f"the address of a Ray cluster is HOST:PORT or auto, got {address}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), SECONDS_TO_CONNECT).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"no Ray cluster answers at {address}: {_first_line(error)}") from None


def _resolved(ray: Any, address: str) -> str:
    """HOST:PORT as Ray takes it, which has its own ideas of "auto" and of localhost."""
    try:
        return str(ray._private.services.canonicalize_bootstrap_address(address))  # noqa: SLF001 - nothing public tells
    except ConnectionError:
        raise InputError("no Ray cluster runs on this machine. Start one: ray start --head") from None
    except (OSError, ValueError):
        return address


def _first_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """What the user has set stands."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Ray installs its own, which would end this process without what our callers do on the way out."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
