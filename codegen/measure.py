"""Timing on the GPU: rotating buffers, loops in CUDA graphs, interleaved pairs with an interval, sustained runs.

Everything that is timed is a list of launches, callables that take a stream; whose kernels they are is not known here.
A loop is captured into a CUDA graph, so that the host's time of a launch does not count, over buffers that together
exceed the L2 cache, so that every product finds its operands where a real one would. Speeds drift with power and heat,
hence what is compared is measured in turns, and only ratios within a turn are looked at. A ratio of loops that run in
turns (burst) and the speed of one that runs alone for seconds (sustained, often at the power limit) are two figures.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .gpu_values import Buffers, check_on_gpu, poison, random_buffers

if TYPE_CHECKING:
    from .check import Check
    from .gemm import Gemm
    from .nvml import Gpu

Launch = Callable[[Any], Any]
"""One product: called with a stream, it launches and returns at once."""

MOST_SETS = 256
"""Buffer sets of a rotation at most: tiny products would need thousands to exceed the cache."""

TARGET_US = 5000.0
"""Length of a replay: launching one takes the host 10 to 20 microseconds, which is hidden behind the one before."""

_MOST_NODES = 20_000
_IN_FLIGHT = 2
_IN_FLIGHT_ALONE = 8
"""Replays queued in a sustained run: asking NVML takes milliseconds, and the card must not wait for that."""

_SAMPLE_SECONDS = 0.05


class Loop(Protocol):
    """What can be timed in turns: ``enqueue`` starts a replay and returns what waits for it and tells its time in
    microseconds a product.
    """

    def enqueue(self) -> Callable[[], float]:
        """Start a replay."""
        ...


def l2_bytes() -> int:
    """The L2 cache of CuPy's current device, in bytes."""
    from .launch import import_cupy

    return int(import_cupy().cuda.Device().attributes["L2CacheSize"])


def buffer_sets(m: int, n: int, k: int, l2: int, element_bytes: int = 2) -> int:
    """Sets of A, B and D that together are larger than twice the cache: 2 at least, MOST_SETS at most.

    >>> buffer_sets(512, 512, 512, 60 * 2**20), buffer_sets(8192, 8192, 8192, 60 * 2**20)
    (81, 2)
    """
    one = element_bytes * (m * k + n * k + m * n)
    return min(max(2, 2 * l2 // one + 1), MOST_SETS)


def rotation(m: int, n: int, k: int, dtype: str = "bf16", l2: int | None = None, seed: int = 0) -> list[Buffers]:
    """Sets of standard normal A (M, K) and B (N, K), and D (M, N) full of NaN, as many as ``buffer_sets`` says;
    ``l2`` in bytes, the current device's if not given.
    """
    from .launch import import_cupy

    count = buffer_sets(m, n, k, l2_bytes() if l2 is None else l2)
    made = [random_buffers(m, n, k, dtype, seed=seed * MOST_SETS + number) for number in range(count)]
    import_cupy().cuda.Device().synchronize()
    return made


@functools.cache
def _timing_stream(device: int) -> Any:
    from .launch import import_cupy

    # One for all loops, so that those measured in turns follow one another.
    return import_cupy().cuda.Stream(non_blocking=True)


def timing_stream() -> Any:
    """The stream in which all loops of the current device run."""
    from .launch import import_cupy

    return _timing_stream(int(import_cupy().cuda.runtime.getDevice()))


class GraphLoop:
    """Launches captured into a CUDA graph, all of them ``repeats`` times over; by default as often as fill
    ``target_us`` microseconds. ``products`` counts the launches of a replay.

    The launches run once before they are captured, so that what loads with a first launch is loaded.
    """

    def __init__(
        self,
        launches: Sequence[Launch],
        repeats: int | None = None,
        target_us: float = TARGET_US,
        stream: Any = None,
    ):
        if not launches:
            raise ValueError("launches=[]: a loop needs at least one launch")
        if repeats is not None and repeats < 1:
            raise ValueError(f"repeats={repeats}: must be at least 1")
        self.launches = tuple(launches)
        self.stream = timing_stream() if stream is None else stream
        for launch in self.launches:
            launch(self.stream)
        self.stream.synchronize()
        self._capture(repeats or 1)
        if repeats is None:
            self.replay_us()  # the first replay uploads the graph
            again = repeats_for(self.replay_us(), len(self.launches), target_us)
            if again > 1:
                self._capture(again)

    def _capture(self, repeats: int) -> None:
        with self.stream:
            self.stream.begin_capture()
            try:
                for _ in range(repeats):
                    for launch in self.launches:
                        launch(self.stream)
            finally:
                # Also after an error: a stream left in capture would refuse everything that follows.
                graph = self.stream.end_capture()
        self._graph = graph
        self.products = repeats * len(self.launches)

    def enqueue(self) -> Callable[[], float]:
        """Starts a replay. What it returns waits for its end and gives microseconds a product."""
        from .launch import import_cupy

        cuda = import_cupy().cuda
        start, end = cuda.Event(), cuda.Event()
        start.record(self.stream)
        self._graph.launch(self.stream)
        end.record(self.stream)

        def microseconds() -> float:
            end.synchronize()
            return float(cuda.get_elapsed_time(start, end)) * 1000 / self.products

        return microseconds

    def replay_us(self) -> float:
        """Runs one replay and waits for it: microseconds a product."""
        return self.enqueue()()


def repeats_for(us: float, launches: int, target_us: float = TARGET_US) -> int:
    """How often to run all launches of ``us`` microseconds each for ``target_us`` of work in one graph.

    >>> repeats_for(2.5, 80), repeats_for(1400.0, 2)
    (25, 2)
    """
    wanted = math.ceil(target_us / (max(us, 0.1) * launches))
    return max(1, min(wanted, _MOST_NODES // launches))


@dataclass(frozen=True)
class Interval:
    """A median with an interval that covers the true one with probability ``coverage``, whatever the distribution."""

    median: float
    low: float
    high: float
    coverage: float


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The median, between the two values of equal rank from either end that cover it with at least ``confidence``.

    The number of values below the true median is binomial with probability one half, hence the ranks and the coverage
    (Conover, Practical Nonparametric Statistics, "confidence interval for a quantile"). Under six values no two ranks
    cover 95 %; then the whole range is given, with the coverage that it has. ValueError without values.

    >>> median_interval(range(1, 16))
    Interval(median=8, low=4, high=12, coverage=0.96484375)
    """
    ordered = sorted(values)
    count = len(ordered)
    if not count:
        raise ValueError("values=[]: a median needs at least one value")
    rank, coverage = 1, 1 - 2 * 0.5**count
    below = 0.5**count
    for tried in range(2, count // 2 + 1):
        below += math.comb(count, tried - 1) * 0.5**count
        if 1 - 2 * below < confidence:
            break
        rank, coverage = tried, 1 - 2 * below
    return Interval(statistics.median(ordered), ordered[rank - 1], ordered[count - rank], max(coverage, 0.0))


@dataclass(frozen=True)
class Pairs:
    """Two loops measured in turns. ``ratio`` is the median over the pairs of the second's time over the first's: above
    1 the first is faster. ``low`` and ``high`` bound its 95 % interval; ``first_us`` and ``second_us`` are median
    microseconds a product, ``pairs`` how many there were, ``coverage`` what the interval covers.
    """

    ratio: float
    low: float
    high: float
    first_us: float
    second_us: float
    pairs: int
    coverage: float


def paired(first_us: Sequence[float], second_us: Sequence[float]) -> Pairs:
    """The comparison of two columns of ``measure_rounds``.

    >>> paired([1.0, 2.0, 4.0], [2.0, 4.0, 12.0]).ratio
    2.0
    """
    ratios = [second / first for first, second in zip(first_us, second_us, strict=True)]
    found = median_interval(ratios)
    return Pairs(
        found.median,
        found.low,
        found.high,
        statistics.median(first_us),
        statistics.median(second_us),
        len(ratios),
        found.coverage,
    )


def measure_rounds(loops: Mapping[str, Loop], rounds: int = 15, warm: int = 2) -> dict[str, list[float]]:
    """Microseconds a product of every loop, a value for each round: in a round each runs once, one after another with
    no gap, every second round backwards. ``warm`` rounds before are not counted.
    """
    if rounds < 1:
        raise ValueError(f"rounds={rounds}: must be at least 1")
    times: dict[str, list[float]] = {name: [] for name in loops}
    pending: deque[tuple[bool, list[tuple[str, Callable[[], float]]]]] = deque()

    def collect() -> None:
        counted, started = pending.popleft()
        for name, wait in started:
            microseconds = wait()
            if counted:
                times[name].append(microseconds)

    for number in range(warm + rounds):
        names = list(loops) if number % 2 == 0 else list(loops)[::-1]
        pending.append((number >= warm, [(name, loops[name].enqueue()) for name in names]))
        if len(pending) >= _IN_FLIGHT:
            collect()
    while pending:
        collect()
    return times


def measure_pairs(first: Loop, second: Loop, pairs: int = 15, warm: int = 2) -> Pairs:
    """Two loops in turns: the median of their ratios with its interval."""
    times = measure_rounds({"first": first, "second": second}, pairs, warm)
    return paired(times["first"], times["second"])


@dataclass(frozen=True)
class Sustained:
    """A loop that ran alone: mean microseconds a product, and over the same time the median clock of the
    multiprocessors, the mean power, and what held the clock back; None or empty where NVML does not tell.
    """

    us: float
    clock_mhz: float | None
    watts: float | None
    seconds: float
    held_back_by: tuple[str, ...] = ()


def measure_alone(
    loop: Loop,
    seconds: float = 3.0,
    warm: float = 1.0,
    gpu: Gpu | None = None,
    now: Callable[[], float] = time.perf_counter,
) -> Sustained:
    """Runs one loop without a pause, ``warm`` seconds until power and clock have settled and ``seconds`` that count.

    ``gpu`` is asked for clock and power; the current device's NVML if not given.
    """
    if gpu is None:
        from .nvml import gpu_or_none

        gpu = gpu_or_none()
    times: list[float] = []
    clocks: list[float] = []
    powers: list[float] = []
    reasons: set[str] = set()
    pending: deque[Callable[[], float]] = deque()
    begin = now()
    counted_from = sampled = math.inf
    joules = None
    while True:
        pending.append(loop.enqueue())
        if len(pending) <= _IN_FLIGHT_ALONE:
            continue
        microseconds = pending.popleft()()
        at = now()
        if at - begin < warm:
            continue
        if counted_from == math.inf:
            counted_from, sampled = at, at
            joules = None if gpu is None else gpu.joules()
            continue
        times.append(microseconds)
        if gpu is not None and at - sampled >= _SAMPLE_SECONDS:
            sampled = at
            _keep(clocks, gpu.clock_mhz())
            _keep(powers, gpu.watts())
            reasons.update(gpu.held_back_by() or ())
        if at - counted_from >= seconds:
            break
    used = None if gpu is None else gpu.joules()
    elapsed = now() - counted_from
    while pending:
        pending.popleft()()
    watts = statistics.fmean(powers) if powers else None
    if joules is not None and used is not None and used > joules:
        watts = (used - joules) / elapsed
    clock = statistics.median(clocks) if clocks else None
    return Sustained(statistics.fmean(times), clock, watts, elapsed, tuple(sorted(reasons)))


def measure_alone_in_turns(
    loops: Mapping[str, Loop],
    seconds: float = 3.0,
    warm: float = 0.25,
    settle: float = 1.5,
    turns: int = 4,
    gpu: Gpu | None = None,
    now: Callable[[], float] = time.perf_counter,
) -> dict[str, Sustained]:
    """Runs every loop alone for ``seconds`` in all, in ``turns`` parts, forwards and backwards by turns, each part after ``warm``
    seconds that do not count. Before all, the first one runs for ``settle`` seconds.

    Coming from rest a GPU runs above its limit for about a second, since the limit is kept on average, and is cooler:
    measured one after another, the first would seem the fastest. For the same reason one that comes after a kernel of little
    power is favoured; several short turns make the neighbours of each count less.
    """
    if not loops:
        return {}
    measure_alone(next(iter(loops.values())), 0.0, settle, gpu, now)
    parts: dict[str, list[Sustained]] = {name: [] for name in loops}
    for turn in range(turns):
        for name in list(loops)[:: 1 if turn % 2 == 0 else -1]:
            parts[name].append(measure_alone(loops[name], seconds / turns, warm, gpu, now))
    return {name: _joined(found) for name, found in parts.items()}


def _joined(parts: Sequence[Sustained]) -> Sustained:
    """Several runs of one loop as one, of equal weight."""
    clocks = [part.clock_mhz for part in parts if part.clock_mhz is not None]
    watts = [part.watts for part in parts if part.watts is not None]
    reasons = sorted({reason for part in parts for reason in part.held_back_by})
    return Sustained(
        statistics.fmean(part.us for part in parts),
        statistics.fmean(clocks) if clocks else None,
        statistics.fmean(watts) if watts else None,
        sum(part.seconds for part in parts),
        tuple(reasons),
    )


def _keep(values: list[float], value: float | None) -> None:
    if value is not None:
        values.append(float(value))


def gemm_launches(gemm: Gemm, buffers: Sequence[Buffers], dependent: bool = False) -> list[Launch]:
    """The launches of a Gemm, one for each set of buffers; ``dependent`` as ``Gemm.bind`` takes it. In one stream they share a
    workspace, as calls of a Gemm do.
    """
    from .workspace import Workspaces

    workspaces = Workspaces()
    return [_kept(gemm.bind(one.a, one.b, one.d, dependent, workspaces)) for one in buffers]


def _kept(bound: Any) -> Launch:
    # The bound GEMM owns the workspace of its launch, which must live as long.
    return lambda stream: bound.launch(stream)


def check_launch(launch: Launch, buffers: Buffers, dtype: str = "bf16", most_products: float = 2e10) -> Check:
    """Runs a launch that writes ``buffers.d``, poisoned before, and compares it with a float64 product."""
    stream = timing_stream()
    poison(buffers.d, stream)
    launch(stream)
    stream.synchronize()
    return check_on_gpu(buffers, dtype, most_products)
