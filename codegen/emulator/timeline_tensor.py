"""What a timeline records of tcgen05: products, commits, and what warps move between tensor memory and registers.

umma                ((thread, rows, n, group), ...)   tcgen05.mma of 32 bytes of K: rows of one block, columns of D, blocks that multiply
commit_umma         ((thread, phases), ...)         the phases of mbarriers that arrive when the thread's products are done
columns             columns                         tcgen05.ld and st of each warp
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stridewright.layout.hardware.tensor_memory_moves import tensor_memory_access

from .cta import RANK_SHIFT
from .ops_copy import each_thread
from .tcgen05_mma import mma_form

if TYPE_CHECKING:
    from .gang import Gang
    from .timeline_record import Recorder

_LOCAL = (1 << RANK_SHIFT) - 1


def tensor_hooks(names: dict[str, Any], machine: Recorder) -> dict[str, Any]:
    """Functions of the namespace that note an event and then do what they did."""
    multiply, commit, load, store = (
        names[name] for name in ("tcgen05_mma", "tcgen05_commit", "tmem_load", "tmem_store")
    )

    def tcgen05_mma(g: Gang, m: Any, kind: str, group: int, ws: bool, *args: Any) -> None:
        vector = args[8] if len(args) > 8 else 0
        issued = []
        for lane, (word,) in each_thread(g, m, args[4]):
            form = mma_form(word, kind, group, ws, vector)
            issued.append((g.base + lane, form.rows, form.n, group))
        machine.note(g, "umma", tuple(issued))
        multiply(g, m, kind, group, ws, *args)

    def tcgen05_commit(g: Gang, m: Any, group: int, address: Any, ranks: Any) -> None:
        cluster = g.cta.cluster
        made = []
        for lane, (at, mask) in each_thread(g, m, address, 0 if ranks is None else ranks):
            places = (
                [at] if ranks is None else [r << RANK_SHIFT | at & _LOCAL for r in range(cluster.size) if mask >> r & 1]
            )
            phases = tuple(machine.phase(cluster.of_address(one).barrier(one)) for one in places)
            made.append((g.base + lane, phases))
        machine.note(g, "commit_umma", tuple(made))
        commit(g, m, group, address, ranks)

    def tmem_load(
        g: Gang, R: list[Any], m: Any, slots: tuple[int, ...], shape: str, repeat: int, packed: bool, *args: Any
    ) -> None:
        machine.note(g, "columns", _columns(shape, repeat, packed))
        load(g, R, m, slots, shape, repeat, packed, *args)

    def tmem_store(g: Gang, m: Any, shape: str, repeat: int, packed: bool, *args: Any) -> None:
        machine.note(g, "columns", _columns(shape, repeat, packed))
        store(g, m, shape, repeat, packed, *args)

    return {
        "tcgen05_mma": tcgen05_mma,
        "tcgen05_commit": tcgen05_commit,
        "tmem_load": tmem_load,
        "tmem_store": tmem_store,
    }


def _columns(shape: str, repeat: int, packed: bool) -> int:
    return tensor_memory_access(shape, repeat, packed).columns
