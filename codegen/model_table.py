"""What the selection model was fitted to: its constants, and the measured runs that correct it.

The numbers lie in ``selection_model.json``, which ``benchmarks/fit_model.py --fit`` writes from measured runs. Knows
nothing of shapes or configurations.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

PATH = Path(__file__).parent / "selection_model.json"


@dataclass(frozen=True)
class Constants:
    """The fitted constants. Times in nanoseconds where nothing else is said."""

    column: float
    """A column of a wgmma of 64 rows and 16 of K."""
    narrow: float
    """What such a wgmma takes however narrow it is."""
    three_consumers: float
    """How much longer multiplies take with three consumers: a factor."""
    alone: float
    """A slot of a consumer warpgroup that multiplies alone, beside its multiplies."""
    handshake_pair: float
    handshake_four: float
    """What a slot takes at least where the CTAs of a cluster of two, or four, wait for one another."""
    latency_pair: float
    """How much later the first bytes of a slot arrive in clusters of two."""
    burst: float
    """Bytes a nanosecond of one slot on its way, the latency of memory with it."""
    door: float
    """Bytes a nanosecond into an SM's shared memory, slot after slot."""
    l2: float
    """10^12 bytes a second of all CTAs' requests to L2."""
    misaligned: float
    """How much dearer requests are whose rows begin between sectors of 32 bytes: a share."""
    outside: float
    """Rows of boxes a nanosecond that lie outside an operand and are filled with zeros: by all SMs together, and slowly."""
    crossing: float
    """10^12 bytes a second between the halves of L2."""
    crossers: float
    """How many readers of a panel each add to what crosses, before they share it."""
    dram: float
    """10^12 bytes a second."""
    uneven_pairs: float
    """Share by which DRAM is slower where some pairs of SMs have two CTAs and some one."""
    idle_clusters: float
    """How much of DRAM's rate is lost with the SMs that take no part, in clusters: an exponent."""
    window: float
    """Share of what the panels of a window of tiles ask for beyond the operands that reaches DRAM."""
    unshared: float
    """Share of a stream's requests that miss L2, since its CTAs stand at different K."""
    staged: float
    """Work of a thread for each of its results that goes through shared memory."""
    direct: float
    direct_odd: float
    """A plain store of a thread where rows have an even number of columns, and an odd one."""
    tail: float
    """Share of the last slot of a tile that padding along K saves."""
    direct_swapped: float
    """The same with operands swapped."""
    launch: float
    """Microseconds of a launch, with the first slot's way and the last one's."""
    cluster: float
    """Microseconds that clusters cost."""
    split: float
    split_bytes: float
    """Microseconds to hand partial sums over, and for each 10 MB of them."""
    power: float
    """How sharply the slowest of several wins: the exponent of a power mean."""
    depth_32: float
    """Logarithms of what slots of 32 cost beyond the form; swapped operands; ping-pong; tiles of 256 rows."""
    swapped: float
    pingpong: float
    high: float


FITTED_ON_SMS = 132
"""Multiprocessors of the H200 that the runs were measured on."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fit: the constants; ``runs``, the features of measured runs (the fields of ``model_work.Features``) each followed by
    its weight; ``doubt``, the logarithm of what a configuration costs that is like none of them.
    """

    constants: Constants
    runs: tuple[tuple[float, ...], ...]
    doubt: float


def read_fitted(text: str) -> Fitted:
    """The fit in a JSON text as ``benchmarks/fit_model.py`` writes it. Raises ValueError where it lacks something."""
    record = json.loads(text)
    differing = {field.name for field in fields(Constants)} ^ set(record["constants"])
    if differing:
        raise ValueError(
            f"not a fit of this form, which has other constants: {', '.join(sorted(differing))}; "
            "run benchmarks/fit_model.py --fit again"
        )
    runs = tuple(tuple(map(float, run)) for run in record["runs"])
    return Fitted(Constants(**record["constants"]), runs, float(record["doubt"]))


@lru_cache(maxsize=1)
def fitted() -> Fitted:
    """The fit that comes with the package.

    >>> 3 < fitted().constants.dram < 5
    True
    """
    return read_fitted(PATH.read_text(encoding="utf-8"))
