"""Simulate a task queue with one driver and workers on several machines, some of which are slow or fail.

The driver handles one result at a time and assigns up to two tasks to each worker. The tasks of a failed machine are
run again. The random seed is fixed, so the results are reproducible.
"""

import math
import random
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

SEED = 0
MIN_SIMULATED = 20_000
SIMULATED_PER_WORKER = 16
"""Number of tasks per worker that are simulated one by one, at least MIN_SIMULATED in total.

The remaining tasks are assumed to run at the rate of the middle half of the simulated tasks."""
TASKS_AHEAD = 2


class Setting(NamedTuple):
    """Assumptions about machines and tasks. Most of them are options of simulate.py."""

    cores: int
    memory_bytes: float
    disk_bytes_per_second: float
    sha256_bytes_per_second: float
    driver_ms: float
    """Milliseconds that the driver spends on a Ray task."""
    local_ms: float
    """Milliseconds that the driver spends on a task of local processes."""
    read_ms: float
    batch_bytes: float
    failures_per_day: float
    replacement_seconds: float
    slow_share: float
    slow_factor: float


class Pool(NamedTuple):
    num_machines: int
    setting: Setting

    @property
    def workers(self) -> int:
        return self.num_machines * self.setting.cores


class QueueResult(NamedTuple):
    """Result of a simulation."""

    seconds: float
    tail_seconds: float
    """Seconds from the time at which the first worker becomes idle to the end of the last task."""
    num_lost: int
    """Number of tasks that were interrupted because their machine failed, and run again."""


class Tasks(NamedTuple):
    number: float
    seconds: float
    """Mean duration of a task."""
    spread: Sequence[float]
    """Durations as multiples of the mean. The simulation draws a multiple at random for each task."""
    driver_seconds: float
    """Seconds that the driver spends on a task."""


def simulate(tasks: Tasks, pool: Pool) -> QueueResult:
    """Simulate some of the tasks one by one and extrapolate to all tasks.

    The failure rate is multiplied by the ratio of all tasks to simulated tasks.
    """
    number = max(1, round(tasks.number))
    num_simulated = min(number, max(MIN_SIMULATED, SIMULATED_PER_WORKER * pool.workers))
    rng = random.Random(SEED)
    pending = [tasks.seconds * one for one in rng.choices(tasks.spread, k=num_simulated)]
    queue = Queue(pool, pending, tasks.driver_seconds, number / num_simulated, rng)
    done_at = queue.run()
    quarter, num_further = num_simulated // 4, number - num_simulated
    middle_seconds = done_at[3 * quarter] - done_at[quarter] if num_further else 1.0
    seconds = done_at[-1] + num_further * middle_seconds / (2 * quarter) if num_further else done_at[-1]
    return QueueResult(seconds, done_at[-1] - queue.first_idle_at, queue.num_lost)


class Queue:
    """State of the simulation: the tasks of each worker, the driver, and machines that fail and are replaced."""

    def __init__(
        self, pool: Pool, pending: list[float], driver_seconds: float, extrapolation: float, rng: random.Random
    ) -> None:
        setting = pool.setting
        self.cores, self.rng, self.pending, self.driver_seconds = setting.cores, rng, pending, driver_seconds
        self.failure_rate = setting.failures_per_day / 86_400 * extrapolation
        self.replacement_seconds = setting.replacement_seconds / extrapolation
        self.speed = [
            1 / setting.slow_factor if rng.random() < setting.slow_share else 1.0 for _ in range(pool.num_machines)
        ]
        self.num_failures = [0] * pool.num_machines
        """Number of failures of each machine."""
        self.assigned: list[list[float]] = [[] for _ in range(pool.workers)]
        """Durations of the tasks that are assigned to each worker. The first task of a worker is running."""
        self.arrives_at: list[float] = [0.0] * pool.workers
        """Time at which the last task of each worker arrives from the driver."""
        self.idle: set[int] = set()
        self.events: list[tuple[float, int, int, int]] = []
        """Heap of (time, order, target, number of failures). The target is a worker, or -1 - machine.

        The event of a worker is ignored if the machine of the worker has failed since the event was added."""
        self.order = count()
        self.driver_at = 0.0
        self.first_idle_at = math.inf
        self.num_lost = 0

    def run(self) -> list[float]:
        """Run until all tasks are done, and return the times at which tasks were done."""
        total, done_at = len(self.pending), list[float]()
        for machine in range(len(self.num_failures)):
            self.start_machine(0.0, machine)
        while len(done_at) < total:
            now, _, target, failures = heappop(self.events)
            if target < 0:
                self.handle_machine_event(now, -target - 1, failures)
            elif failures == self.num_failures[target // self.cores]:
                done_at.append(now)
                self.assigned[target].pop(0)
                self.start_task(now, target)
                self.assign_task(now, target)
        return done_at

    def handle_machine_event(self, now: float, machine: int, failures: int) -> None:
        """Handle the failure or the replacement of a machine."""
        if failures != self.num_failures[machine]:
            self.start_machine(now, machine)
            return
        self.num_failures[machine] += 1
        for worker in self.workers_of(machine):
            self.num_lost += bool(self.assigned[worker])
            self.pending += self.assigned[worker]
            self.assigned[worker].clear()
            self.idle.discard(worker)
        heappush(self.events, (now + self.replacement_seconds, next(self.order), -machine - 1, -1))
        for worker in sorted(self.idle):
            self.assign_task(now, worker)

    def start_machine(self, now: float, machine: int) -> None:
        if self.failure_rate:
            fails_at = now + self.rng.expovariate(self.failure_rate)
            heappush(self.events, (fails_at, next(self.order), -machine - 1, self.num_failures[machine]))
        for _ in range(TASKS_AHEAD):
            for worker in self.workers_of(machine):
                self.assign_task(now, worker)

    def workers_of(self, machine: int) -> range:
        return range(machine * self.cores, (machine + 1) * self.cores)

    def assign_task(self, now: float, worker: int) -> None:
        """Assign the next pending task to the worker as soon as the driver is free."""
        if not self.pending:
            if not self.assigned[worker]:
                self.idle.add(worker)
                self.first_idle_at = min(self.first_idle_at, now)
            return
        self.idle.discard(worker)
        self.driver_at = max(self.driver_at, now) + self.driver_seconds
        self.arrives_at[worker] = self.driver_at
        self.assigned[worker].append(self.pending.pop())
        if len(self.assigned[worker]) == 1:
            self.start_task(now, worker)

    def start_task(self, now: float, worker: int) -> None:
        if self.assigned[worker]:
            machine = worker // self.cores
            seconds = self.assigned[worker][0] / self.speed[machine]
            ends_at = max(now, self.arrives_at[worker]) + seconds
            heappush(self.events, (ends_at, next(self.order), worker, self.num_failures[machine]))
