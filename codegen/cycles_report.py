"""The cycle model's verdict on a kernel, in numbers and in words: how long, how much of it the tensor core multiplies, and what it waits for.

    modelled_cycles(config)                     of a configuration with sizes, on the chip of its architecture
    sensitivity(config)                         the same with each constant halved, a fifth less, a fifth more, doubled
    ladder_cycles(m, n, k)                      of each rung of the Blackwell ladder

A model, never held against a Blackwell; benchmarks/results/cycles.json says how the same code ranks Hopper's kernels as measured.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .cycles import B200, H200, TAIL, Chip, Walk, Work, changed, walk
from .cycles_kernels import work_of

if TYPE_CHECKING:
    from stridewright.kernels.blackwell_ladder import Rung
    from stridewright.kernels.config import GemmConfig

CONSTANTS = (
    "sms",
    "clock",
    "flops",
    "shared",
    "l2",
    "dram",
    "l2_bytes",
    "latency",
    "barrier",
    "commit",
    "copy",
    "registers",
    "store",
    "convert",
    "start",
    "launch",
)
"""Constants of a Chip that ``sensitivity`` changes: all numbers but ``port``, which has an answer of its own there."""

UNITS = {
    "sms": "",
    "clock": "Hz",
    "flops": "operations a clock",
    "shared": "bytes a clock",
    "l2": "bytes a clock",
    "dram": "bytes a second",
    "l2_bytes": "bytes",
    "latency": "clocks",
    "barrier": "clocks",
    "commit": "clocks",
    "copy": "clocks",
    "registers": "bytes a clock",
    "store": "bytes a clock",
    "convert": "clocks",
    "start": "clocks",
    "launch": "seconds",
}
"""Of each of them; rates are those of one SM (``registers``: of a warp, ``dram``: of the chip)."""

FACTORS = (0.5, 0.8, 1.2, 2.0)


@dataclass(frozen=True)
class CycleModel:
    """What the model says of a kernel on a chip.

    ``steady``: the tensor core's share of the busiest SM's clocks between its first multiply and its last; ``use``: operations
    over what all SMs could do in ``seconds``, launch, last wave and idle SMs included. ``lost``: where the rest of it went, in shares
    that add up to 1 - use.
    """

    label: str
    chip: str
    seconds: float
    clocks: float
    steady: float
    use: float
    tiles: int
    waits: dict[str, float]
    lost: dict[str, float]

    def lines(self) -> list[str]:
        """The verdict in words."""
        whole = [
            f"Cycle model of a {self.chip} (a model, not a measurement): {self.seconds * 1e6:.1f} us, {self.use:.1%} of the tensor cores' rate; the "
            f"busiest SM takes {self.tiles} tiles in {self.clocks:.0f} clocks,",
            f"and multiplies {self.steady:.1%} of the time between its first multiply and its last. Of all SMs' time goes:",
        ]
        rows = [f"  {share:6.1%}  {reason}" for reason, share in self.lost.items() if share >= 0.0005]
        return whole + rows

    def record(self) -> dict[str, Any]:
        """The same for JSON."""
        return dataclasses.asdict(self)


def chip_of(arch: str) -> Chip:
    """The chip that the model has for an architecture.

    >>> chip_of("sm_90a").name, chip_of("sm_100a").name
    ('H200', 'B200')
    """
    return H200 if arch.startswith("sm_90") else B200


def modelled_cycles(config: GemmConfig, chip: Chip | None = None, rung: Rung | None = None) -> CycleModel:
    """The model's verdict on a configuration whose problem has sizes. ``rung``: the Blackwell rung that it is of, if it is one.

    Raises ValueError without sizes, and where K is divided among CTAs.

    >>> from stridewright.kernels.blackwell_ladder import rungs
    >>> from stridewright.kernels.config import Problem
    >>> best = rungs()[-1].config.replace(problem=Problem(m=8192, n=8192, k=8192))
    >>> modelled_cycles(best).steady > 0.95
    True
    """
    chip = chip_of(config.arch) if chip is None else chip
    problem = config.problem
    work = work_of(config, chip, rung)
    assert problem.m is not None
    assert problem.n is not None
    assert problem.k is not None
    return _verdict(work, chip, 2.0 * problem.m * problem.n * problem.k)


def _verdict(work: Work, chip: Chip, operations: float) -> CycleModel:
    found: Walk = walk(work, chip)
    seconds = chip.launch + found.clocks / chip.clock
    # The same operations at the tensor cores' rate for the formats, spread over all SMs.
    per_tile = work.slots * work.multiply
    rate = work.operations / work.multiply
    ideal = operations / (rate * chip.sms)
    total = seconds * chip.clock
    lost = {reason: clocks / total for reason, clocks in found.waits.items()}
    lost["launch"] = chip.launch * chip.clock / total
    lost["idle SMs of the last wave, and what lies outside D"] = work.tiles * per_tile / total - ideal / total
    tail = lost.pop(TAIL)
    lost[TAIL] = tail
    return CycleModel(
        label=work.label,
        chip=chip.name,
        seconds=seconds,
        clocks=found.clocks,
        steady=found.steady,
        use=ideal / total,
        tiles=work.tiles,
        waits={reason: clocks for reason, clocks in found.waits.items() if clocks},
        lost={reason: share for reason, share in lost.items() if share},
    )


def sensitivity(
    config: GemmConfig, chip: Chip | None = None, rung: Rung | None = None
) -> dict[str, dict[float, CycleModel]]:
    """The verdict with each constant multiplied by each of ``FACTORS``, by constant and factor; and, under the names of the two
    assumptions, with one port of shared memory for all, and with tcgen05.cp and tcgen05.mma one after the other (factor 1).
    """
    chip = chip_of(config.arch) if chip is None else chip
    found = {
        name: {factor: modelled_cycles(config, changed(chip, name, factor), rung) for factor in FACTORS}
        for name in CONSTANTS
        if getattr(chip, name)
    }
    found["one port of shared memory"] = {1.0: modelled_cycles(config, dataclasses.replace(chip, port=1.0), rung)}
    found["tcgen05.cp beside no tcgen05.mma"] = {
        1.0: modelled_cycles(config, dataclasses.replace(chip, copy_alone=False), rung)
    }
    return found


def sensitivity_table(config: GemmConfig, chip: Chip | None = None) -> list[str]:
    """The steady share for each constant and factor, as lines of a table."""
    chip = chip_of(config.arch) if chip is None else chip
    base = modelled_cycles(config, chip)
    lines = [f"{'steady use of ' + f'{base.steady:.1%}, if':<34}{'halved':>9}{'-20 %':>9}{'+20 %':>9}{'doubled':>9}"]
    for name, row in sensitivity(config, chip).items():
        if len(row) == 1:
            lines.append(f"{name:<34}{row[1.0].steady:>9.1%}")
        else:
            value = getattr(chip, name)
            lines.append(
                f"{f'{name} = {value:g} {UNITS[name]}':<34}"
                + "".join(f"{row[factor].steady:>9.1%}" for factor in FACTORS)
            )
    return lines


def ladder_cycles(m: int, n: int, k: int, arch: str = "sm_100a") -> list[tuple[Rung, CycleModel]]:
    """Each rung of the Blackwell ladder with the model's verdict for a problem.

    >>> [round(verdict.use, 1) for _, verdict in ladder_cycles(8192, 8192, 8192)][-1]
    1.0
    """
    from stridewright.kernels.blackwell_ladder import rungs

    found = []
    for rung in rungs(arch):
        config = rung.config.replace(problem=dataclasses.replace(rung.config.problem, m=m, n=n, k=k))
        found.append((rung, modelled_cycles(config, rung=rung)))
    return found
