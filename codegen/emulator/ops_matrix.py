"""wgmma, mma.sync, ldmatrix and stmatrix of translated code."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from . import matrix_moves
from .accumulators import Fragment, bind
from .errors import EmulationError
from .matrix import WgmmaShape
from .mma_sync import MmaShape
from .mma_sync import mma_sync as mma_of_warps
from .ops_memory import array_of
from .values import Value

if TYPE_CHECKING:
    from .cta import WarpGroup
    from .gang import Gang


@functools.lru_cache(maxsize=256)
def _shape(key: tuple[Any, ...]) -> WgmmaShape:
    n, k, a, b, d, a_major, b_major, negate_a, negate_b, saturate = key
    shape = WgmmaShape(n, a, b, d, a_major, b_major, negate_a, negate_b, saturate)
    if shape.k != k:
        raise EmulationError(f"wgmma of {a} has k = {shape.k}, not {k}")
    return shape


def _same(g: Gang, value: Value, what: str) -> int:
    if value.__class__ is int:
        return value
    first = int(value[0])
    if not bool((value == value[0]).all()):
        other = int(np.flatnonzero(value != value[0])[0])
        raise EmulationError(
            f"wgmma's {what} must be the same in all threads of the warpgroup: thread 0 has {first:#x}, "
            f"thread {other} {int(value[other]):#x}"
        )
    return first


def wgmma_issue(
    g: Gang,
    R: list[Any],
    slots: tuple[int, ...],
    sources: tuple[int, ...],
    key: tuple[Any, ...],
    a: Any,
    b: Value,
    scale: Value,
) -> None:
    """wgmma.mma_async."""
    cta = g.cta
    group = cta.warpgroup(g)
    shape = _shape(key)
    if scale.__class__ is np.ndarray:
        if not (scale.all() or not scale.any()):
            raise EmulationError("wgmma's scale-d differs between threads of the warpgroup")
        scale = bool(scale[0])
    first = R[slots[0]]
    touched = first.__class__ is not Fragment or first.owner.rows is not None or bool(sources)
    if not group.fenced and touched and not cta.launch.lenient:
        raise EmulationError(
            "wgmma.mma_async without wgmma.fence: its registers were accessed by other instructions since the last fence "
            "(PTX ISA, wgmma.fence)"
        )
    owner = bind(g, R, slots, shape.n, shape.d, scale)
    owner.place = g.at
    left = a if sources else _same(g, a, "descriptor of A")
    right = _same(g, b, "descriptor of B")
    if cta.races is not None:
        cta.races.wgmma(g, group, group.queue.footprint_chunks(shape, left, right))
    cta.machine.multiplies += 1
    group.queue.issue(
        shape, owner.accumulator, left, right, scale, cta.machine.shuffled and cta.machine.random.random() < 0.5
    )


def wgmma_fence(g: Gang) -> None:
    """wgmma.fence."""
    g.cta.warpgroup(g).fenced = True


def wgmma_commit(g: Gang) -> None:
    """wgmma.commit_group."""
    g.cta.warpgroup(g).queue.commit()


def wgmma_wait(g: Gang, pending: int) -> None:
    """wgmma.wait_group."""
    group: WarpGroup = g.cta.warpgroup(g)
    group.queue.wait(pending)
    if not group.queue.pending:
        group.fenced = False
    if g.cta.races is not None:
        g.cta.races.wgmma_wait(g, group)


# -- warps -----------------------------------------------------------------------------------------------------------------------


def _rows(g: Gang, m: Any, count: int) -> Any:
    mask = matrix_moves.row_lanes(g.width, count)
    return mask if m is None else mask & m


def _warps(g: Gang, m: Any, what: str) -> Any:
    """None if all warps execute; else the lanes that do, whole warps."""
    if g.width % 32:
        raise EmulationError(f"{what} in a block whose last warp is not full")
    g.require_full_warps(m, what)
    return None if m is None else np.flatnonzero(m)


def load_matrix(g: Gang, m: Any, address: Value, count: int, trans: bool) -> Any:
    """ldmatrix -> registers."""
    lanes = _warps(g, m, "ldmatrix")
    cta = g.cta
    addresses = array_of(address, 4, g.width)
    rows = _rows(g, m, count)
    found = matrix_moves.ldmatrix(cta.shared, addresses if lanes is None else addresses[lanes], count, trans)
    if cta.races is not None:
        cta.races.generic(g, rows, cta, addresses, 16, False)
    cta.launch.banks.count(g, rows, addresses, 16, "ldmatrix", count)
    if lanes is None:
        return list(found)
    full = np.zeros((count, g.width), np.uint32)
    full[:, lanes] = found
    return list(full)


def store_matrix(g: Gang, m: Any, address: Value, values: tuple[Value, ...], trans: bool) -> None:
    """stmatrix."""
    lanes = _warps(g, m, "stmatrix")
    cta = g.cta
    cta.machine.idle = 0
    addresses = array_of(address, 4, g.width)
    rows = _rows(g, m, len(values))
    registers = np.array([array_of(value, 4, g.width) for value in values])
    if lanes is None:
        matrix_moves.stmatrix(cta.shared, addresses, registers, trans)
    else:
        matrix_moves.stmatrix(cta.shared, addresses[lanes], registers[:, lanes], trans)
    if cta.races is not None:
        cta.races.generic(g, rows, cta, addresses, 16, True)
    cta.launch.banks.count(g, rows, addresses, 16, "stmatrix", len(values))


def move_matrix(g: Gang, m: Any, value: Value) -> Value:
    """movmatrix."""
    _warps(g, m, "movmatrix")
    return matrix_moves.movmatrix(array_of(value, 4, g.width))


@functools.lru_cache(maxsize=64)
def _mma_shape(shape: tuple[int, int, int], a: str, b: str, d: str, saturate: bool) -> MmaShape:
    return MmaShape(*shape, a, b, d, saturate)


def mma_sync(
    g: Gang, m: Any, shape: tuple[int, int, int], a: str, b: str, d: str, saturate: bool, *groups: tuple[Value, ...]
) -> Any:
    """mma.sync -> registers of D."""
    lanes = _warps(g, m, "mma.sync")
    one = _mma_shape(shape, a, b, d, saturate)
    tables = [np.array([array_of(value, 4, g.width) for value in group]) for group in groups]
    if lanes is not None:
        tables = [table[:, lanes] for table in tables]
    left, right, start = tables
    found = mma_of_warps(one, left, right, start, g.cta.launch.numerics)
    if lanes is None:
        return list(found)
    full = np.zeros((found.shape[0], g.width), np.uint32)
    full[:, lanes] = found
    return list(full)


def move_range(g: Gang, R: list[Any], target: int, source: int, count: int) -> None:
    """A run of moves between accumulator registers."""
    held = R[source : source + count]
    last: Any = None
    for value in held:
        if value.__class__ is Fragment and value.owner is not last:
            last = value.owner
            last.copied = True
    R[target : target + count] = held
