"""clusterlaunchcontrol of translated code: requests that take clusters off the grid before they start, and what their answers say.

The 16 bytes of an answer are opaque (PTX ISA): here a mark that they are one, whether a cluster was taken, and the coordinates of its first
block. Which requests succeed is the hardware's choice: with seed 0 all do while clusters are left, else now and then one fails before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .cta import RANK_SHIFT, Barrier, Cta
from .errors import EmulationError
from .ops_copy import InFlight, each_thread
from .values import Value

if TYPE_CHECKING:
    from .gang import Gang

_MARK = 0x00C1_A57E
"""The second 32-bit word; the first has the verdict."""
_SIZE = 16
_LOCAL = (1 << RANK_SHIFT) - 1


def cancel_launch(g: Gang, m: Any, target: Value, barrier: Value, everywhere: bool) -> None:
    """clusterlaunchcontrol.try_cancel: `everywhere`: the answer goes to every block of the cluster."""
    cta, machine = g.cta, g.cta.machine
    for lane, (to, bar) in each_thread(g, m, target, barrier):
        if to % _SIZE:
            raise EmulationError(f"clusterlaunchcontrol.try_cancel to {to:#x}: must be a multiple of {_SIZE}")
        if cta.launch_refused and not cta.launch.lenient:
            raise EmulationError(
                f"clusterlaunchcontrol.try_cancel by block {cta.ctaid}, which has seen an earlier one fail: its behaviour is undefined then"
            )
        targets: list[tuple[Cta, int, Barrier, Any]] = []
        for one in cta.cluster.ctas if everywhere else (cta,):
            base = one.rank << RANK_SHIFT
            address, counted = to & _LOCAL | base, one.barrier(bar & _LOCAL | base)
            stamp = None
            if one.races is not None:
                stamp = one.races.bulk_load(g, lane, one, [(address, address + _SIZE)], counted)
            targets.append((one, address, counted, stamp))
        answer: list[Any] = []

        def move(one: Cta, address: int, answer: list[Any] = answer) -> int:
            if not answer:
                answer.append(_encode(machine.cancel_cluster()))
            one.shared.write(address, answer[0])
            return _SIZE

        machine.fly(InFlight(g, targets, move, ("answer to clusterlaunchcontrol.try_cancel, bytes", _SIZE, None)))


def _encode(taken: tuple[int, int, int] | None) -> Any:
    """Verdict and mark, then the block: x in 32 bits, y and z in 16 (CUDA's limits for a grid: 2^31 - 1, 65535, 65535)."""
    x, y, z = taken or (0, 0, 0)
    return np.array([int(taken is not None), _MARK, x, y | z << 16], np.uint32).view(np.uint8)


def _halves(g: Gang, value: Any) -> tuple[Any, Any]:
    """The two 64-bit halves of an answer, for the threads that execute."""
    if value.__class__ is not tuple:
        raise EmulationError("a register of 128 bits that was never written")
    low, high = value
    if g.lane >= 0:
        low, high = (int(one[g.lane]) if one.__class__ is np.ndarray else one for one in (low, high))
    return low, high


def launch_cancelled(g: Gang, m: Any, value: Any) -> Value:
    """clusterlaunchcontrol.query_cancel.is_canceled."""
    low, _ = _halves(g, value)
    found = np.atleast_1d(np.asarray(low, np.uint64))
    used = found if m is None or found.size == 1 else found[m]
    if bool((used >> np.uint64(32) != _MARK).any()):
        raise EmulationError(
            f"query_cancel of {int(used[0]):#x}: no answer of a try_cancel, or one that has not arrived (wait for its mbarrier)"
        )
    if not bool((used & np.uint64(1)).all()):
        g.cta.launch_refused = True
    if low.__class__ is np.ndarray:
        return (low & np.uint64(1)) != 0
    return bool(low & 1)


def cancelled_block(g: Gang, value: Any, axis: int) -> Value:
    """clusterlaunchcontrol.query_cancel.get_first_ctaid: of a failed request it has no meaning (compilers ask for it all the same)."""
    _, high = _halves(g, value)
    shift, mask = ((0, 0xFFFF_FFFF), (32, 0xFFFF), (48, 0xFFFF))[axis]
    if high.__class__ is np.ndarray:
        return (high >> np.uint64(shift) & np.uint64(mask)).astype(np.uint32)
    return high >> shift & mask
