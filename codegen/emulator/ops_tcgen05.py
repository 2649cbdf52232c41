"""tcgen05.mma, cp, commit and fence of translated code: each is checked where it is issued and done later, by the queue of its thread."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stridewright.layout.errors import LayoutError
from stridewright.layout.hardware.descriptors import FIELD_LIMIT, decode_matrix_descriptor
from stridewright.layout.hardware.instruction_descriptors import input_scale_problems
from stridewright.layout.hardware.tensor_memory import LANES

from .cta import RANK_SHIFT, Cta
from .errors import EmulationError
from .faults import DescriptorError
from .operands import CHUNK, ChunkTable, chunk_union, read_chunks
from .ops_barrier import Who, phase_check
from .ops_copy import each_thread
from .tcgen05_mma import Form, Step, check_accumulator, mma_form, operand_tables, scale_columns_of
from .tcgen05_queue import Commit, Mma, Move, Operation
from .tensor_state import TensorState, state_of
from .tmem import EVERY_GROUP, LANE_GROUP, TensorMemoryError, cells, split_address
from .tmem_races import TensorRaces

if TYPE_CHECKING:
    from .gang import Gang
    from .values import Value

_LOCAL = (1 << RANK_SHIFT) - 1


def _members(g: Gang, state: TensorState, group: int, what: str) -> tuple[Cta, ...]:
    """The blocks that an instruction works on, their state made; the pair must run, and its even-ranked block issue."""
    state.use_group(group, g)
    members = state.members(group)
    if group == 2:
        peer = state.peer
        if not peer.alive.any():
            raise EmulationError(
                f"{what}.cta_group::2: the pair's other block {peer.ctaid} has ended; it must live until the instruction is done"
            )
        if g.cta.rank & 1:
            raise EmulationError(
                f"{what}.cta_group::2 is issued by block {g.cta.ctaid} of rank {g.cta.rank}: only the even-ranked block of a pair issues it "
                "in all code known; the other way is not modelled"
            )
        state_of(peer).use_group(group, g)
    return members


def _log(
    g: Gang, lane: int, operation: Operation, lanes: tuple[int, int], column: int, columns: int, fresh: bool = False
) -> None:
    log = g.cta.machine.tensor_log
    if log is not None:
        operation.events = [
            log.note(g, cta, operation.name, lanes, column, columns, thread=g.base + lane, fresh=fresh)
            for cta in operation.ctas
        ]


# -- mma -------------------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def _enabled(words: tuple[int, ...]) -> tuple[NDArray[np.bool_], ...]:
    """disable-output-lane: for each block, which of its 128 lanes are written; bit i of word j is lane 32 j + i."""
    free = np.array([not word >> bit & 1 for word in words for bit in range(32)], np.bool_)
    return tuple(free.reshape(-1, LANES))


@functools.lru_cache(maxsize=256)
def _written_groups(form: Form, lane: int, words: tuple[int, ...], number: int) -> tuple[int, ...]:
    """Lane groups that the accumulator takes in a block, less those whose lanes are all disabled."""
    groups = tuple(group + lane // LANE_GROUP for group in form.lane_groups)
    if words:
        enabled = _enabled(words)[number].reshape(-1, LANE_GROUP)
        groups = tuple(group for group in groups if enabled[group].any())
    return groups


def _a_column(form: Form, state: Sequence[TensorState], address: int, d_lane: int) -> int:
    """The column of an A in tensor memory."""
    lane, column = split_address(address)
    if form.descriptor.a_major != "k":
        raise DescriptorError(
            "unknown", "A in tensor memory is K-major: bit 15 of the instruction descriptor must be 0"
        )
    if form.ws and form.rows != LANES:
        raise DescriptorError(
            "unknown", f"A of {form.rows} rows in tensor memory with .ws is not modelled: its lanes are not known"
        )
    if lane != d_lane:
        raise TensorMemoryError(
            "misaligned",
            f"A in tensor memory from lane {lane}: its rows must lie in the lanes of D's, which begin at {d_lane}",
        )
    for one in state:
        one.memory.check(column, form.a_columns, "tcgen05.mma (A)")
    return column


def _scale_places(form: Form, states: Sequence[TensorState], addresses: Sequence[int]) -> list[tuple[int, int]]:
    """(column, columns) of the scale factors of A and B. CuTe keeps the ids in bits 30 and 31 of the addresses too (mma_sm100_desc.hpp)."""
    found = []
    for address, width in zip(addresses, scale_columns_of(form), strict=False):
        lane, column = split_address(address & 0x3FFFFFFF)
        if lane:
            raise TensorMemoryError("misaligned", f"scale factors from lane {lane}: they begin at lane 0")
        for one in states:
            one.memory.check(column, width, "tcgen05.mma (scale factors)")
        found.append((column, width))
    return found


def tcgen05_mma(
    g: Gang,
    m: Any,
    kind: str,
    group: int,
    ws: bool,
    in_memory: bool,
    d: Value,
    a: Value,
    b: Value,
    word: Value,
    accumulate: Value,
    disabled: tuple[Value, ...],
    scale: int,
    vector: int = 0,
    scales: tuple[Value, ...] = (),
    collector: tuple[str, str] = ("a", "discard"),
) -> None:
    """tcgen05.mma: every executing thread issues one."""
    cta = g.cta
    state = state_of(cta)
    launch = cta.launch
    arch = launch.program.module.target
    if accumulate.__class__ is bool:
        accumulate = int(accumulate)
    for problem in input_scale_problems(kind, scale):
        raise DescriptorError("unknown", str(problem))
    for lane, (to, left, right, fields, keep, *more) in each_thread(
        g, m, d, a, b, word, accumulate, *disabled, *scales
    ):
        masks, factors = more[: len(disabled)], more[len(disabled) :]
        members = _members(g, state, group, "tcgen05.mma")
        states = [state_of(one) for one in members]
        form = mma_form(fields, kind, group, ws, vector)
        at = split_address(to)
        check_accumulator(form, at[0])
        for one in states:
            one.memory.check(at[1], form.columns, "tcgen05.mma (D)")
        source = _a_column(form, states, left, at[0]) if in_memory else left
        places = _scale_places(form, states, factors)
        step = Step(source, right, in_memory, *(column for column, _ in places))
        tables = [operand_tables(form, one.shared, (step,), arch) for one in members]
        words = tuple(masks)
        if cta.cluster.tensor is not None:
            memory = [
                (one, cells(groups, at[1], form.columns), True)
                for number, one in enumerate(members)
                if (groups := _written_groups(form, at[0], words, number))
            ]
            if in_memory:
                lanes = tuple(group_ + at[0] // LANE_GROUP for group_ in form.lane_groups)
                memory += [(one, cells(lanes, source, form.a_columns), False) for one in members]
            memory += [(one, cells(EVERY_GROUP, column, width), False) for one in members for column, width in places]
            shared = [
                (one, chunk_union(*(table for table in pair if table is not None)))
                for one, pair in zip(members, tables, strict=True)
            ]
            cta.cluster.tensor.operation(g, lane, ("mma", form.key, at), ("cp", "shift"), memory, shared)
        enabled = _enabled(words) if words and any(words) else None
        cta.machine.multiplies += 1
        operation = Mma(g.at, members, form, step, at, bool(keep), scale if keep else 0, enabled, collector)
        _log(g, lane, operation, (at[0], LANES - at[0]), at[1], form.columns, not keep)
        state.queue(g.base + lane).push(operation)


# -- cp --------------------------------------------------------------------------------------------------------------------------

# Rows, bytes of a row, and the lanes of each row (PTX ISA 9.1, 9.7.16.9.2; the same as layout.hardware.tensor_memory_copy, a test holds them equal).
COPIES: dict[tuple[str, str], tuple[int, int, tuple[tuple[int, ...], ...]]] = {
    ("128x256b", ""): (128, 32, tuple((row,) for row in range(128))),
    ("128x128b", ""): (128, 16, tuple((row,) for row in range(128))),
    ("4x256b", ""): (4, 32, tuple((32 * row,) for row in range(4))),
    ("32x128b", "warpx4"): (32, 16, tuple(tuple(row + 32 * q for q in range(4)) for row in range(32))),
    ("64x128b", "warpx2::02_13"): (64, 16, tuple((row, row + 64) for row in range(64))),
    ("64x128b", "warpx2::01_23"): (
        64, 16, tuple((row % 32 + row // 32 * 64, row % 32 + row // 32 * 64 + 32) for row in range(64)),
    ),
}  # fmt: skip


@functools.lru_cache(maxsize=4096)
def copy_table(word: int, rows: int, size: int, base: int, extent: int, arch: str) -> ChunkTable:
    """The chunks of shared memory that tcgen05.cp reads: rows of `size` bytes as a K-major operand of bytes has them."""
    try:
        descriptor = decode_matrix_descriptor(word, arch)
        addresses = descriptor.addresses("u8", "k", rows, size)[:, ::CHUNK] + (base & -FIELD_LIMIT)
    except LayoutError as error:
        raise DescriptorError("unknown", str(error)) from None
    low, high = int(addresses.min()), int(addresses.max()) + CHUNK
    if low < base or high > base + extent:
        raise DescriptorError(
            "out of bounds",
            f"tcgen05.cp with {descriptor} ({word:#018x}) reads shared addresses {low:#x}..{high - 1:#x}; this block has "
            f"{base:#x}..{base + extent - 1:#x}",
        )
    used = np.unique(addresses)
    breaks = np.flatnonzero(np.diff(used) != CHUNK)
    firsts, lasts = used[np.r_[0, breaks + 1]], used[np.r_[breaks, used.size - 1]] + CHUNK
    ranges = tuple((int(first), int(last)) for first, last in zip(firsts, lasts, strict=True))
    index = np.ascontiguousarray((addresses - base) >> 4).astype(np.intp)
    return ChunkTable(index, ((used - base) >> 4).astype(np.intp), ranges, low, high)


def decompress(chunks: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Sixteen values of 4 or 6 bits in every 16 bytes, packed and then padded, as one in each byte (PTX ISA 9.1, section 9.7.16.9.1).

    PTX shows the place of a value in its byte in a figure only; here it is in the lowest bits, which TensorMemory.formats remembers.

    >>> decompress(np.array([0x21, 0x43, 0, 0, 0, 0, 0, 0, *8 * [0xFF]], np.uint8), 4)[:4].tolist()
    [1, 2, 3, 4]
    """
    groups = chunks.reshape(*chunks.shape[:-1], -1, CHUNK)[..., : 2 * bits]
    digits = np.unpackbits(groups, axis=-1, bitorder="little").reshape(*groups.shape[:-1], CHUNK, bits)
    return np.packbits(digits, axis=-1, bitorder="little").reshape(chunks.shape)


def tcgen05_copy(
    g: Gang, m: Any, group: int, shape: str, multicast: str, address: Value, descriptor: Value, bits: int = 0
) -> None:
    """tcgen05.cp: shared memory -> tensor memory, of each block of the group. `bits`: of the values that are decompressed, or 0."""
    cta = g.cta
    state = state_of(cta)
    arch = cta.launch.program.module.target
    rows, size, places = COPIES[shape, multicast]
    for lane, (to, word) in each_thread(g, m, address, descriptor):
        members = _members(g, state, group, "tcgen05.cp")
        first, column = split_address(to)
        if first:
            raise TensorMemoryError("misaligned", f"tcgen05.cp.{shape} to lane {first}: its rows begin at lane 0")
        memory = []
        tables = []
        for one in members:
            state_of(one).memory.check(column, size // 4, "tcgen05.cp")
            tables.append(copy_table(word, rows, size, one.shared.base, one.shared.size, arch))
            memory.append((one, cells(_groups_of(shape, multicast), column, size // 4), True))
        if cta.cluster.tensor is not None:
            shared = [(one, table.chunks) for one, table in zip(members, tables, strict=True)]
            after = ("shift",) if shape == "4x256b" else ()
            cta.cluster.tensor.operation(g, lane, ("cp",), after, memory, shared)

        def move(
            members: Sequence[Cta] = members, tables: Sequence[ChunkTable] = tuple(tables), column: int = column
        ) -> None:
            for one, table in zip(members, tables, strict=True):
                raw = read_chunks(one.shared, table).view(np.uint8).reshape(rows, -1)
                words = (decompress(raw, bits) if bits else raw).view(np.uint32)
                lanes = np.array(places)
                found = state_of(one).memory
                found.decompressed |= bits > 0
                for copy in range(lanes.shape[1]):
                    found.words[lanes[:, copy], column : column + words.shape[1]] = words
                    found.written[lanes[:, copy], column : column + words.shape[1]] = True
                    found.formats[lanes[:, copy], column : column + words.shape[1]] = bits

        operation = Move("cp", g.at, members, move, shape == "4x256b")
        _log(g, lane, operation, (0, LANES), column, size // 4)
        state.queue(g.base + lane).push(operation)


@functools.lru_cache(maxsize=8)
def _groups_of(shape: str, multicast: str) -> tuple[int, ...]:
    lanes = {lane for row in COPIES[shape, multicast][2] for lane in row}
    return tuple(group for group in EVERY_GROUP if any(lane // LANE_GROUP == group for lane in lanes))


# -- commit and fences -----------------------------------------------------------------------------------------------------------


def tcgen05_commit(g: Gang, m: Any, group: int, address: Value, ranks: Value) -> None:
    """tcgen05.commit: an arrival on an mbarrier, or with a mask on those of several blocks, when the thread's operations are done."""
    cta = g.cta
    cluster = cta.cluster
    state = state_of(cta)
    cta.machine.idle = 0
    races = cluster.tensor
    place = g.program.places[g.at]
    for lane, (at, mask) in each_thread(g, m, address, -1 if ranks is None else ranks):
        state.use_group(group, g)
        if mask < 0:
            addresses = [at]
        else:
            if mask >> cluster.size or not mask:
                raise EmulationError(f"tcgen05.commit: multicast mask {mask:#x} in a cluster of {cluster.size} blocks")
            addresses = [rank << RANK_SHIFT | at & _LOCAL for rank in range(cluster.size) if mask >> rank & 1]
        barriers = [cluster.of_address(one).barrier(one) for one in addresses]
        stamp = None if races is None else races.commit(g, lane, barriers)
        state.queue(g.base + lane).push(Commit(g.at, functools.partial(_arrive, g, addresses, stamp, place, Who(g))))


def _arrive(g: Gang, addresses: Sequence[int], stamp: Any, place: Any, who: Who) -> None:
    """What a commit does when its time has come."""
    for address in addresses:
        cta = g.cta.cluster.ctas[address >> RANK_SHIFT]
        if not cta.alive.any():
            # Its shared memory is somebody else's by now.
            if cta.launch.strict:
                missing = "a wait for this phase, or a cluster barrier after it, before the block's end"
                cta.launch.checks.left(cta, str(who), "tcgen05.commit", str(place), missing)
            continue
        barrier = cta.barrier(address)
        before = barrier.phase
        if stamp is not None:
            TensorRaces.landed(barrier, stamp)
        barrier.arrive(1, place, who)
        phase_check(barrier, before)


def tcgen05_fence(g: Gang, m: Any, before: bool) -> None:
    """tcgen05.fence::before_thread_sync and after_thread_sync."""
    races = g.cta.cluster.tensor
    if races is None:
        state_of(g.cta)
        races = g.cta.cluster.tensor
    if races is not None:
        for row in races.rows(g, m):
            if before:
                races.fence_before(row)
            else:
                races.fence_after(row)
