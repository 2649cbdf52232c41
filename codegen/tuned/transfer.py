"""What was fastest for other shapes, made to fit this one: where a tuner may begin.

Shapes that are alike in M, N and K mostly want alike configurations; what a model gets wrong about one it gets wrong about
its neighbours too, and measuring has corrected it there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from stridewright.codegen import space
from stridewright.kernels.config import GemmConfig, Problem, Split

from .records import KINDS, StaleRecordError, read_config, read_problem
from .store import Store
from .table import Table


def distance(one: Problem, other: Problem) -> float:
    """How unlike two shapes are: doublings of M, N and K, and one more where TMA can store only one of the results.

    >>> distance(Problem(m=8, n=64, k=64), Problem(m=16, n=64, k=64))
    1.0
    """
    total = 0.0
    for name in ("m", "n", "k"):
        first, second = getattr(one, name), getattr(other, name)
        total += (math.log2(first) - math.log2(second)) ** 2
    assert one.n is not None
    assert other.n is not None
    return math.sqrt(total) + ((one.n % 8 == 0) != (other.n % 8 == 0))


def adapted(config: GemmConfig, problem: Problem, sms: int = space.SMS) -> GemmConfig | None:
    """``config`` for another problem: its way to store, its slots and its parts of K as that one allows, no sizes baked in;
    None where no kernel has the rest.

    >>> adapted(GemmConfig(), Problem(m=64, n=63, k=64)).epilogue.store
    'direct'
    """
    n = space.sizes_of(problem)[1]
    stored = config.epilogue.store
    odd = getattr(config.problem, "n", None)
    if n % 8:
        stored = "direct"
    elif stored == "direct" and odd is not None and odd % 8:
        stored = "tma"  # it was direct because it had to be
    fitted = config.replace(problem=problem, specialize="", store=stored)
    if fitted.split.kind == "split":
        parts = space.useful_parts(fitted, sms)
        nearest = min(parts, key=lambda one: abs(one - config.split.parts), default=1)
        fitted = fitted.replace(
            split=Split(kind="split", parts=nearest, reduce=config.split.reduce) if parts else Split()
        )
    if fitted.violations() and not fitted.on_blackwell:
        fitted = space.with_most_stages(fitted, sms)
    return None if fitted.violations() else fitted


def known(store: Store, tables: Iterable[Table], device: str, arch: str) -> Iterator[tuple[Problem, GemmConfig]]:
    """(problem, fastest configuration) of everything that was tuned on such a device, here or in a table."""
    for entry in store.entries():
        record = entry.record
        if record is None or record.get("device") != device or record.get("arch") != arch or not record.get("best"):
            continue
        try:
            problem = read_problem(record["problem"])
            yield problem, read_config(record["best"]["config"], problem)
        except (StaleRecordError, KeyError, TypeError):
            continue
    for table in tables:
        if table.arch == arch:
            for problem, tabled in table.entries.items():
                yield problem, tabled.config


def transfers(
    problem: Problem,
    most: int,
    store: Store,
    tables: Iterable[Table],
    device: str,
    arch: str = "sm_90a",
    sms: int = space.SMS,
) -> list[GemmConfig]:
    """Up to ``most`` different configurations for ``problem``, from the shapes that are most like it, the nearest first."""
    alike = [
        (distance(problem, other), number, config)
        for number, (other, config) in enumerate(known(store, tables, device, arch))
        if all(getattr(problem, kind) == getattr(other, kind) for kind in KINDS)
    ]
    found: dict[GemmConfig, None] = {}
    for _, _, config in sorted(alike, key=lambda one: one[:2]):
        fitted = adapted(config, problem, sms)
        if fitted is not None:
            found.setdefault(fitted)
        if len(found) == most:
            break
    return list(found)
