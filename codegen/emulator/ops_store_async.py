"""st.async of translated code: a store into a block of the cluster that completes later, on an mbarrier beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .cta import Cta
from .errors import EmulationError
from .ops_copy import InFlight, each_thread
from .values import Value

if TYPE_CHECKING:
    from .gang import Gang


def store_async(g: Gang, m: Any, target: Value, barrier: Value, values: tuple[Value, ...], width: int) -> None:
    """st.async.shared::cluster: each thread stores its values of `width` bytes; the barrier counts them when they land.

    PTX ISA 9.7.9.12: in the generic proxy; both addresses in one block of the cluster, which has more than one.
    """
    cluster = g.cta.cluster
    if cluster.size < 2:
        raise EmulationError("st.async outside a cluster: its behaviour is undefined unless %cluster_nctarank > 1")
    total = width * len(values)
    for lane, (to, at, *words) in each_thread(g, m, target, barrier, *values):
        cta, home = cluster.of_address(to), cluster.of_address(at)
        if cta is not home:
            raise EmulationError(
                f"st.async to block {cta.ctaid}, but its mbarrier is in block {home.ctaid}: must be one"
            )
        if to % total:
            raise EmulationError(f"st.async to shared address {to:#x}: must be a multiple of its {total} bytes")
        one = cta.barrier(at)
        stamp = None
        if cta.races is not None:
            stamp = cta.races.bulk_load(g, lane, cta, [(to, to + total)], one, generic=True)
        mask = (1 << 8 * width) - 1
        data = np.frombuffer(b"".join((word & mask).to_bytes(width, "little") for word in words), np.uint8)

        def move(cta: Cta, address: int, data: Any = data) -> int:
            cta.shared.write(address, data)
            return int(data.size)

        g.cta.machine.fly(InFlight(g, [(cta, to, one, stamp)], move, ("store of bytes", total, None)))
