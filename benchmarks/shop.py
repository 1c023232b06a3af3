"""A queue simulated task by task: workers on machines, one driver, slow machines, machines that die.

The driver serves one answer at a time and keeps two tasks ahead per worker. What a machine was at when it died is done
again. The same seed gives the same numbers.
"""

import math
import random
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

SEED = 0
MIN_DRAWN = 20_000
DRAWN_PER_WORKER = 16
"""Tasks that are simulated one by one; many more than these go at the rate that these reach in their middle half."""
TASKS_AHEAD = 2


class Setting(NamedTuple):
    """What is assumed, and can be set."""

    cores: int
    memory_bytes: float
    disk_bytes_per_second: float
    sha256_bytes_per_second: float
    driver_ms: float
    """Of the driver for one Ray task."""
    local_ms: float
    """For one task of its own processes."""
    read_ms: float
    batch_bytes: float
    deaths_per_day: float
    replaced_seconds: float
    slow_share: float
    slow_factor: float


class Pool(NamedTuple):
    num_machines: int
    setting: Setting

    @property
    def workers(self) -> int:
        return self.num_machines * self.setting.cores


class Flow(NamedTuple):
    seconds: float
    tail_seconds: float
    """From the first worker that finds nothing left to do until the last one is done."""
    num_lost: int
    """Tasks that were done again because their machine died."""


class Tasks(NamedTuple):
    number: float
    seconds: float
    """On average."""
    spread: Sequence[float]
    driver_seconds: float
    """For each."""


def simulate(tasks: Tasks, pool: Pool) -> Flow:
    """Some of the tasks, one by one; deaths come as much more often as there are more tasks than those."""
    number = max(1, round(tasks.number))
    drawn = min(number, max(MIN_DRAWN, DRAWN_PER_WORKER * pool.workers))
    rng = random.Random(SEED)
    waiting = [tasks.seconds * one for one in rng.choices(tasks.spread, k=drawn)]
    shop = Shop(pool, waiting, tasks.driver_seconds, number / drawn, rng)
    done_at = shop.run()
    quarter, rest = drawn // 4, number - drawn
    middle = done_at[3 * quarter] - done_at[quarter] if rest else 1.0
    seconds = done_at[-1] + rest * middle / (2 * quarter) if rest else done_at[-1]
    return Flow(seconds, done_at[-1] - shop.first_idle_at, shop.num_lost)


class Shop:
    """Workers, each with a task and one ahead; a driver; machines that die and come back."""

    def __init__(
        self, pool: Pool, waiting: list[float], driver_seconds: float, times_as_many: float, rng: random.Random
    ) -> None:
        setting = pool.setting
        self.cores, self.rng, self.waiting, self.driver_seconds = setting.cores, rng, waiting, driver_seconds
        self.death_rate = setting.deaths_per_day / 86_400 * times_as_many
        self.replaced_seconds = setting.replaced_seconds / times_as_many
        self.speed = [
            1 / setting.slow_factor if rng.random() < setting.slow_share else 1.0 for _ in range(pool.num_machines)
        ]
        self.lives = [0] * pool.num_machines
        self.at: list[list[float]] = [[] for _ in range(pool.workers)]
        """The task that each worker is at, and those ahead."""
        self.arrived: list[float] = [0.0] * pool.workers
        self.idle: set[int] = set()
        self.events: list[tuple[float, int, int, int]] = []
        self.order = count()
        self.driver_at = 0.0
        self.first_idle_at = math.inf
        self.num_lost = 0

    def run(self) -> list[float]:
        """When each task got done."""
        total, done_at = len(self.waiting), list[float]()
        for machine in range(len(self.lives)):
            self.start_machine(0.0, machine)
        while len(done_at) < total:
            now, _, what, life = heappop(self.events)
            if what < 0:
                self.on_machine(now, -what - 1, life)
            elif life == self.lives[what // self.cores]:
                done_at.append(now)
                self.at[what].pop(0)
                self.begin(now, what)
                self.hand(now, what)
        return done_at

    def on_machine(self, now: float, machine: int, life: int) -> None:
        """It dies, or comes back."""
        if life != self.lives[machine]:
            self.start_machine(now, machine)
            return
        self.lives[machine] += 1
        for worker in self.workers_of(machine):
            self.num_lost += bool(self.at[worker])
            self.waiting += self.at[worker]
            self.at[worker].clear()
            self.idle.discard(worker)
        heappush(self.events, (now + self.replaced_seconds, next(self.order), -machine - 1, -1))
        for worker in sorted(self.idle):
            self.hand(now, worker)

    def start_machine(self, now: float, machine: int) -> None:
        if self.death_rate:
            dies_at = now + self.rng.expovariate(self.death_rate)
            heappush(self.events, (dies_at, next(self.order), -machine - 1, self.lives[machine]))
        for _ in range(TASKS_AHEAD):
            for worker in self.workers_of(machine):
                self.hand(now, worker)

    def workers_of(self, machine: int) -> range:
        return range(machine * self.cores, (machine + 1) * self.cores)

    def hand(self, now: float, worker: int) -> None:
        """One task more, once the driver comes to it."""
        if not self.waiting:
            if not self.at[worker]:
                self.idle.add(worker)
                self.first_idle_at = min(self.first_idle_at, now)
            return
        self.idle.discard(worker)
        self.driver_at = max(self.driver_at, now) + self.driver_seconds
        self.arrived[worker] = self.driver_at
        self.at[worker].append(self.waiting.pop())
        if len(self.at[worker]) == 1:
            self.begin(now, worker)

    def begin(self, now: float, worker: int) -> None:
        if self.at[worker]:
            machine = worker // self.cores
            took = self.at[worker][0] / self.speed[machine]
            ends_at = max(now, self.arrived[worker]) + took
            heappush(self.events, (ends_at, next(self.order), worker, self.lives[machine]))
