"""What the selection model was fitted to: its constants, and how far families of configurations were off.

The numbers lie in ``selection_model.json``, which ``benchmarks/fit_model.py --fit`` writes from measured runs. Knows
nothing of shapes or configurations.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    latency: float
    """From the request for a slot to its first bytes."""
    latency_pair: float
    """How much longer that is in clusters of two: a share."""
    burst: float
    """Bytes a nanosecond at which the rest of a slot follows its first bytes."""
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


FAMILY = ("swapped", "pingpong", "consumers", "tile_m", "tile_k", "cluster_m", "cluster_n", "divided")
"""What the configurations of a family have in common; ``divided``: whether they share the sum over K."""


def family_codes(*columns: Any) -> NDArray[np.int64]:
    """A number for each family, from the fields of FAMILY as arrays of a common shape.

    >>> bool(family_codes(0, 0, 1, 64, 64, 1, 1, 0) == family_codes(0, 0, 1, 64, 64, 1, 2, 0))
    False
    """
    swapped, pingpong, consumers, tile_m, tile_k, cluster_m, cluster_n, divided = (
        np.asarray(column).astype(np.int64) for column in columns
    )
    code = ((swapped * 2 + pingpong) * 4 + consumers) * 8 + tile_m // 64
    code = ((code * 16 + tile_k // 32) * 8 + cluster_m) * 8 + cluster_n
    found: NDArray[np.int64] = code * 2 + divided
    return found


@dataclass(frozen=True)
class Fitted:
    """A fit: the constants, and for each family (sorted codes) the logarithm of what measured times were beyond the
    form, with what the doubt about few measurements adds; ``doubt`` for a family that was never measured.
    """

    constants: Constants
    codes: NDArray[np.int64]
    beyond: NDArray[np.float64]
    doubt: float

    def of_families(self, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """The logarithm to add for each family.

        >>> bool(fitted().of_families(family_codes(1, 1, 9, 640, 64, 1, 1, 0)) == fitted().doubt)
        True
        """
        if not len(self.codes):
            return np.full(codes.shape, self.doubt)
        places = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        found: NDArray[np.float64] = np.where(self.codes[places] == codes, self.beyond[places], self.doubt)
        return found


def read_fitted(text: str) -> Fitted:
    """The fit in a JSON text as ``benchmarks/fit_model.py`` writes it. Raises ValueError where it lacks something."""
    record = json.loads(text)
    missing = {field.name for field in fields(Constants)} ^ set(record["constants"])
    if missing or record["families"]["fields"] != [*FAMILY, "beyond", "shapes"]:
        raise ValueError(
            f"not a fit of this form: {', '.join(sorted(missing)) or 'families'}; "
            "run benchmarks/fit_model.py --fit again"
        )
    rows = np.asarray(record["families"]["rows"], dtype=np.float64).reshape(-1, len(FAMILY) + 2)
    codes = family_codes(*rows[:, : len(FAMILY)].T)
    order = np.argsort(codes)
    doubt = float(record["doubt"])
    beyond = rows[:, -2] + doubt / (1 + rows[:, -1])
    return Fitted(Constants(**record["constants"]), codes[order], beyond[order], doubt)


@lru_cache(maxsize=1)
def fitted() -> Fitted:
    """The fit that comes with the package.

    >>> 3 < fitted().constants.dram < 5
    True
    """
    return read_fitted(PATH.read_text(encoding="utf-8"))
