"""The ladder on a GPU: every rung beside cuBLASLt's first choice in one run, each result checked.

A rung is compared with cuBLASLt in pairs, one replay of a CUDA graph of each in turn, over operands that together exceed the L2
cache; how is ``measure``'s business.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .gpu_values import Buffers
    from .ladder import Rung
    from .measure import Launch


@dataclass(frozen=True)
class RungResult:
    """One rung on the GPU. ``ratio`` is cuBLASLt's time over the rung's in pairs, with its 95 % interval; ``us``
    microseconds a product; ``checked`` says how the result compares with float64. ``published`` is the public source's ratio.
    """

    number: str
    title: str
    configuration: str
    us: float
    tflops: float
    ratio: float
    low: float
    high: float
    pairs: int
    right: bool
    relative_error: float
    registers: int
    published: float | None


@dataclass(frozen=True)
class LadderResult:
    """The whole ladder for one shape. ``reference`` names what cuBLASLt chose, ``reference_us`` its median time over all
    pairs.
    """

    m: int
    n: int
    k: int
    reference: str
    reference_us: float
    reference_tflops: float
    rows: tuple[RungResult, ...]

    @property
    def right(self) -> bool:
        """Whether every rung's result was right."""
        return all(row.right for row in self.rows)


def tflops(m: int, n: int, k: int, us: float) -> float:
    """10^12 floating-point operations a second of a product that takes ``us`` microseconds.

    >>> round(tflops(4096, 4096, 4096, 200.0), 1)
    687.2
    """
    return 2 * m * n * k / us / 1e6


def rung_launches(rung: Rung, buffers: Sequence[Buffers]) -> list[Launch]:
    """The launches of a rung, one for each set of buffers."""

    def kept(bound: Any) -> Launch:
        # What is bound owns the arrays that the launch reads, so it must live as long.
        return lambda stream: bound.launch(stream)

    return [kept(rung.bind(one.a, one.b, one.d)) for one in buffers]


def measure_ladder(
    rungs: Sequence[Rung], pairs: int = 15, report: Callable[[RungResult], None] | None = None
) -> LadderResult:
    """Times and checks these rungs, all of one problem, beside cuBLASLt's first choice; ``report`` is called with each as it is
    done. Needs a GPU of the rungs' architecture, CuPy and cuBLASLt.
    """
    from .cublaslt import CublasLtGemm, heuristics
    from .measure import GraphLoop, check_launch, measure_pairs, rotation

    m, n, k = rungs[0].m, rungs[0].n, rungs[0].k
    buffers = rotation(m, n, k)
    first_choice = heuristics(m, n, k, most=1)[0]
    reference = GraphLoop(CublasLtGemm(m, n, k, first_choice).launches(buffers))
    rows: list[RungResult] = []
    reference_us: list[float] = []
    for rung in rungs:
        launches = rung_launches(rung, buffers)
        check = check_launch(launches[0], buffers[0])
        timed = measure_pairs(GraphLoop(launches), reference, pairs)
        reference_us.append(timed.second_us)
        row = RungResult(
            number=rung.number,
            title=rung.title,
            configuration=rung.configuration,
            us=timed.first_us,
            tflops=tflops(m, n, k, timed.first_us),
            ratio=timed.ratio,
            low=timed.low,
            high=timed.high,
            pairs=timed.pairs,
            right=check.passed,
            relative_error=check.relative_error,
            registers=rung.build.kernels[0].registers,
            published=rung.spec.published,
        )
        rows.append(row)
        if report is not None:
            report(row)
    median = statistics.median(reference_us)
    return LadderResult(m, n, k, first_choice.name, median, tflops(m, n, k, median), tuple(rows))
