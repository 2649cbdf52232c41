"""What a tuner measures with: on a GPU, every candidate checked and timed in CUDA graphs over rotating buffers.

``Bench`` and ``Runner`` are all that tuning asks for; ``GpuBench`` does it through ``measure``. Knows no candidates but
the one it is given.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from stridewright.kernels.config import GemmConfig, Problem

from .tuned.device import TuningDevice, current_device

if TYPE_CHECKING:
    from .gpu_values import Buffers
    from .measure import GraphLoop, Launch

RELATIVE_ERROR = 2.0**-7
"""Frobenius error, relative, that no right kernel reaches: rounding D to bf16 gives at most 2^-9, and deep sums less than
as much again. It catches wrong tiles where K is so deep that the bound of a single element says little.
"""

_REPLAY_US = 4000.0
"""Length of a replay of the reference and in the finals; a candidate's first one is half as long."""
_SETTLE_US = 10_000.0
"""How long the reference runs right before a candidate that keeps the tensor cores busy."""
_PAUSE_US = 30_000.0
"""What the host takes to load a kernel, bind it and capture a graph, roughly. Meanwhile the reference runs: at its power limit
the card comes down to the clock that it can keep only after a tenth of a second without pauses, and another configuration is
the fastest then (on an H200 a product of 4096 cubed takes 171 us after a pause and 195 us without one).
"""
_BUSY_FLOPS = 3.5e14
"""Floating-point operations a second from which power is what limits."""
_SCREENED = 2
_WARM, _SETTLE = 0.12, 1.0
"""Seconds that each runs alone, and the first one before all, that do not count."""


class Runner(Protocol):
    """One candidate, ready to run."""

    def check(self) -> str:
        """What is wrong with its result in a poisoned output, or nothing."""
        ...

    def screen_us(self, expected_us: float) -> float:
        """A first impression of its microseconds a product. ``expected_us``, a model's word, tells how often to run it."""
        ...

    def expect(self, us: float) -> None:
        """Tells it what is known of its time, where it was screened before."""
        ...


class Bench(Protocol):
    """The card, or what stands for one."""

    @property
    def device(self) -> TuningDevice:
        """What the results are filed under."""
        ...

    def open(self, config: GemmConfig, dependent: bool) -> Runner:
        """Loads a kernel that was compiled before. ``dependent``: programmatic dependent launch."""
        ...

    def rounds(self, runners: Mapping[str, Runner], rounds: int) -> dict[str, list[float]]:
        """Microseconds a product of each runner, a value for each round, in which each runs once."""
        ...

    def alone(self, runners: Mapping[str, Runner], seconds: float) -> dict[str, float]:
        """Microseconds a product of each, which runs without a pause for ``seconds``, after the card has settled."""
        ...

    def alive(self) -> bool:
        """Whether the device still answers: an illegal access ends the use of it for this process."""
        ...


class GpuBench:
    """The current GPU and one problem: buffers are drawn once, larger together than twice the L2 cache.

    Raises LaunchError where there is no GPU of the architecture.
    """

    def __init__(self, problem: Problem, arch: str = "sm_90a") -> None:
        from .launch import LaunchError, gpu_available
        from .measure import rotation
        from .space import sizes_of

        usable, reason = gpu_available(arch)
        device = current_device() if usable else None
        if device is None:
            raise LaunchError(f"no GPU to tune {arch} on: {reason}")
        self._device = device
        self._problem = problem
        self._buffers: list[Buffers] = rotation(*sizes_of(problem), problem.a)
        self._reference: GraphLoop | None = None
        self._reference_us = 0.0

    @property
    def device(self) -> TuningDevice:
        """The GPU."""
        return self._device

    def open(self, config: GemmConfig, dependent: bool) -> Runner:
        """Loads the kernel and binds it to every set of buffers."""
        from .gemm import Gemm
        from .measure import gemm_launches
        from .space import sizes_of

        self.keep_busy(_PAUSE_US)
        problem = self._problem
        kinds = {name: getattr(problem, name) for name in ("a", "b", "d", "a_major", "b_major")}
        gemm = Gemm(*sizes_of(problem), **kinds, arch=config.arch, config=config)
        return GpuRunner(self, gemm_launches(gemm, self._buffers, dependent), self._buffers[0], problem.d)

    def rounds(self, runners: Mapping[str, Runner], rounds: int) -> dict[str, list[float]]:
        """Interleaved replays of a graph of each."""
        from .measure import measure_rounds

        loops: dict[str, Any] = {}
        for name, runner in runners.items():
            assert isinstance(runner, GpuRunner)
            loops[name] = runner.final_loop()
        return measure_rounds(loops, rounds, warm=1)

    def alone(self, runners: Mapping[str, Runner], seconds: float) -> dict[str, float]:
        """A graph of each over and over, by turns; what clock and power need to settle does not count."""
        from .measure import measure_alone_in_turns

        loops: dict[str, Any] = {}
        for name, runner in runners.items():
            assert isinstance(runner, GpuRunner)
            loops[name] = runner.final_loop()
        return {name: found.us for name, found in measure_alone_in_turns(loops, seconds, _WARM, _SETTLE).items()}

    def _limited_by_power(self) -> bool:
        from .space import sizes_of

        m, n, k = sizes_of(self._problem)
        return self._reference_us > 0 and 2e6 * m * n * k / self._reference_us > _BUSY_FLOPS

    def keep_busy(self, us: float) -> None:
        """Has the reference run for about ``us`` microseconds while the host does something else, where power limits."""
        if self._limited_by_power():
            self._run_reference(us)

    def _run_reference(self, us: float) -> list[Callable[[], float]]:
        """Starts the reference for about ``us`` microseconds, so that what follows finds the card as a long run would."""
        loop = self._reference
        if loop is None:
            return []
        return [loop.enqueue() for _ in range(max(1, round(us / (loop.products * self._reference_us))))]

    def against_reference(self, loop: GraphLoop) -> float:
        """Microseconds a product of ``loop``, by its ratio to the reference that runs before and after it without a pause:
        so that a drifting clock cancels. The first loop becomes the reference.
        """
        if self._reference is None:
            self._reference, self._reference_us = loop, loop.replay_us()
            times = [wait() for wait in self._run_reference(_PAUSE_US)]
            self._reference_us = times[-1]
            return self._reference_us
        self.keep_busy(_SETTLE_US)
        long = self._reference.products * self._reference_us > 2 * _REPLAY_US
        if not long:
            loop.enqueue()  # the first replay uploads the graph
        started = [self._run_reference(1.0)[0]]
        for _ in range(1 if long else _SCREENED):
            started += [loop.enqueue(), self._run_reference(1.0)[0]]
        self.keep_busy(_SETTLE_US)  # while the outcome is written down
        times = [wait() for wait in started]
        turns = zip(times[::2], times[1::2], times[2::2], strict=False)
        ratios = [2 * own / (before + after) for before, own, after in turns]
        return statistics.fmean(ratios) * self._reference_us

    def alive(self) -> bool:
        """Whether the device can still be waited for."""
        from .launch import import_cupy

        try:
            import_cupy().cuda.Device().synchronize()
        except Exception:  # CuPy's errors are of its own classes
            return False
        return True


class GpuRunner:
    """The launches of one candidate over all sets of buffers, ``first`` the set that is checked."""

    def __init__(self, bench: GpuBench, launches: list[Launch], first: Buffers, dtype: str) -> None:
        self._bench = bench
        self._launches = launches
        self._first = first
        self._dtype = dtype
        self._us = 0.0
        self._loop: GraphLoop | None = None

    def check(self) -> str:
        """Runs it once into NaN and compares with float64, as ``check_on_gpu`` does."""
        from .measure import check_launch

        found = check_launch(self._launches[0], self._first, self._dtype)
        if not found.passed:
            return found.worst
        if found.relative_error > RELATIVE_ERROR:
            return f"relative error {found.relative_error:.3g}, and {RELATIVE_ERROR:.3g} would be much"
        return ""

    def screen_us(self, expected_us: float) -> float:
        """Its time beside the reference."""
        from .measure import GraphLoop, repeats_for

        self._bench.keep_busy(_SETTLE_US)
        repeats = repeats_for(expected_us, len(self._launches), _REPLAY_US / 2)
        self._us = self._bench.against_reference(GraphLoop(self._launches, repeats))
        return self._us

    def expect(self, us: float) -> None:
        """Notes its microseconds a product, by which the final loop is made as long as it should be."""
        self._us = us

    def final_loop(self) -> GraphLoop:
        """A longer loop, captured once."""
        from .measure import GraphLoop, repeats_for

        if self._loop is None:
            repeats = repeats_for(self._us, len(self._launches), _REPLAY_US) if self._us else None
            self._loop = GraphLoop(self._launches, repeats, _REPLAY_US)
        return self._loop
