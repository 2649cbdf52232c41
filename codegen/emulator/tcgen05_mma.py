"""tcgen05.mma: what one instruction computes, from the bits of its descriptors, on the memories of one block or a pair.

    form = mma_form(idesc, kind, cta_group, ws)       fields of the instruction descriptor, checked; raises for anything undefined
    sides = [Side(shared, memory), ..]                the blocks that take part, the even-ranked one first
    run(form, sides, steps, numerics)                 D = A B^T + D for steps along k that share everything but their operands

A step holds the words of A (a matrix descriptor, or a column of tensor memory) and of B. Where rows and columns of the accumulator lie is
layout.hardware.tensor_memory's; where operands lie in shared memory is layout.hardware.descriptors'.

Numerics. "float32" sums in float32 in any order. "hardware": one fused sum of C and the products of an instruction, aligned to the largest
exponent, cut at 25 fractional bits, rounded toward zero to f32 (to nearest even for f16); kind::mxf8f6f4 with its scale factors' exponents added; kinds mxf4
and mxf4nvf4 by groups of 16 products, cut at 35 bits. That model is a paper's (MMA-Sim, arXiv 2511.10909); it was not measured here, and no Blackwell has
confirmed this module.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewright.layout.errors import LayoutError
from stridewright.layout.hardware.instruction_descriptors import InstructionDescriptor, decode_instruction_descriptor
from stridewright.layout.hardware.tensor_memory import LANES, data_path

from .accumulate import FP4_GROUP, group_sum, tensor_sum
from .faults import DescriptorError
from .memory import SharedMemory
from .numerics import to_float32
from .operands import ChunkTable, chunk_table, read_chunks
from .tmem import TensorMemory, TensorMemoryError

__all__ = ["Form", "Side", "Step", "memory_operand", "mma_form", "operand_tables", "run", "scale_columns_of"]

_ONE_THREAD = 1 << 18
"""Multiplications that OpenBLAS does in one thread (see matrix.py)."""


@dataclass(frozen=True)
class Form:
    """One kind of tcgen05.mma: its descriptor's fields, and what follows from them."""

    descriptor: InstructionDescriptor
    cta_group: int
    ws: bool
    letter: str
    """PTX's name of the accumulator's layout."""
    vector: int = 0
    """Elements along k that share a scale factor; 0: the kind has none."""

    @property
    def rows(self) -> int:
        """Rows of A and D that each block has."""
        return self.descriptor.m // self.cta_group

    @property
    def n(self) -> int:
        """Columns of D, the same in both blocks of a pair."""
        return self.descriptor.n

    @property
    def k(self) -> int:
        """Elements of k of one instruction."""
        return self.descriptor.instruction_k

    @functools.cached_property
    def columns(self) -> int:
        """32-bit columns of the accumulator in each block."""
        return self.n // {"B": 2, "E": 2, "G": 4}.get(self.letter, 1)

    @functools.cached_property
    def lane_groups(self) -> tuple[int, ...]:
        """Groups of 16 lanes that the accumulator takes, from lane 0."""
        return (0, 2, 4, 6) if self.letter in "FC" else tuple(range(8))

    @functools.cached_property
    def a_bits(self) -> int:
        """Bits of one element of A where it is stored."""
        return 256 // self.k if self.descriptor.kind != "tf32" else 32

    @functools.cached_property
    def a_columns(self) -> int:
        """Columns of one instruction's A in tensor memory."""
        return self.k * self.a_bits // 32

    def stored(self, dtype: str) -> str:
        """The operand type as it lies in memory: kinds f8f6f4 and mxf8f6f4 read 4- and 6-bit values from 16-byte chunks, 16 values packed and
        then padding; mxf4 and mxf4nvf4 read packed pairs (PTX ISA 9.1, section 9.7.16.3).
        """
        return "e2m1_padded" if dtype == "e2m1" and self.a_bits == 8 else dtype

    @functools.cached_property
    def small_bits(self) -> int:
        """Bits of A's values where tensor memory holds one in each byte of the ordinary kinds; 0 where they fill their bytes or words."""
        return _BITS.get(self.descriptor.a, 0) if self.a_bits == 8 else 0

    @property
    def key(self) -> tuple[Any, ...]:
        """What two instructions must share to be pipelined, with the accumulator's address: group, shape, kind."""
        one = self.descriptor
        return self.cta_group, self.ws, one.kind, one.m, one.n


@functools.lru_cache(maxsize=256)
def mma_form(word: int, kind: str, cta_group: int, ws: bool = False, vector: int = 0) -> Form:
    """The form that an instruction descriptor's bits name, for the kind and group of the instruction. `vector`: elements for each scale factor.

    >>> form = mma_form(0x08400490, "f16", 1)
    >>> form.rows, form.n, form.k, form.letter, form.descriptor.a
    (128, 256, 16, 'D', 'bf16')
    """
    try:
        fields = decode_instruction_descriptor(word, kind)
        found = fields.problems(cta_group, ws)
        if found:
            raise DescriptorError("unknown", f"instruction descriptor {word:#010x}: " + "; ".join(map(str, found)))
        letter = data_path(fields.m, cta_group, ws, fields.sparse)
    except LayoutError as error:
        raise DescriptorError("unknown", str(error)) from None
    if fields.sparse:
        raise DescriptorError("unknown", f"instruction descriptor {word:#010x}: sparse A (bit 2) is not modelled")
    if fields.max_shift:
        raise DescriptorError(
            "unknown", f"instruction descriptor {word:#010x}: bits 30-31 (largest shift of B) are not modelled; use 0"
        )
    if fields.k:
        raise DescriptorError("unknown", f"instruction descriptor {word:#010x}: K = 96 (bit 31) is not modelled")
    if fields.block_scaled and letter == "B":
        raise DescriptorError(
            "unknown",
            "block scaling of a pair with M = 128 is not modelled: where its 64 rows' scale factors lie is not known",
        )
    if vector == 16 and fields.scale_a_id | fields.scale_b_id:
        raise DescriptorError(
            "unknown", f"instruction descriptor {word:#010x}: with four scale factors a row both ids must be 0"
        )
    return Form(fields, cta_group, ws, letter, vector)


class Side:
    """One block that takes part: its shared memory, and its tensor memory."""

    __slots__ = ("memory", "shared")

    def __init__(self, shared: SharedMemory, memory: TensorMemory) -> None:
        self.shared = shared
        self.memory = memory


@dataclass(frozen=True, slots=True)
class Step:
    """Operands of one instruction: A's descriptor, or the column of its A in tensor memory; B's descriptor; columns of scale factors."""

    a: int
    b: int
    a_in_memory: bool = False
    scale_a: int = -1
    scale_b: int = -1


def operand_tables(
    form: Form, shared: SharedMemory, steps: Sequence[Step], arch: str
) -> tuple[ChunkTable | None, ChunkTable]:
    """The chunks of shared memory that one block gives for A (None: from tensor memory) and B."""
    fields = form.descriptor
    words = tuple(step.a for step in steps)
    left = None
    if not steps[0].a_in_memory:
        left = chunk_table(words, form.rows, form.stored(fields.a), fields.a_major, shared.base, shared.size, arch)
    words = tuple(step.b for step in steps)
    right = chunk_table(
        words, form.n // form.cta_group, form.stored(fields.b), fields.b_major, shared.base, shared.size, arch
    )
    return left, right


_BITS = {"e2m1": 4, "e2m3": 6, "e3m2": 6}


@functools.lru_cache(maxsize=4)
def _small_float(exponent_bits: int, fraction: int) -> NDArray[np.float32]:
    """The values of a float of at most 6 bits without infinities and NaNs (OCP microscaling formats 1.0): e2m1, e2m3, e3m2."""
    bits = 1 + exponent_bits + fraction
    code = np.arange(1 << bits)
    field, digits = code >> fraction & ((1 << exponent_bits) - 1), code & ((1 << fraction) - 1)
    bias = (1 << exponent_bits - 1) - 1
    value = np.where(field > 0, digits + (1 << fraction), digits) * 2.0 ** (np.maximum(field, 1) - bias - fraction)
    found: NDArray[np.float32] = np.where(code >> bits - 1, -value, value).astype(np.float32)
    return found


_SMALL = {"e2m1": (2, 1), "e2m1_padded": (2, 1), "e2m3": (2, 3), "e3m2": (3, 2)}


def values_of(raw: NDArray[np.uint8], dtype: str) -> NDArray[np.float32]:
    """Exact values of operand bytes, of a type as Form.stored names it; the last axis is contiguous.

    >>> values_of(np.array([[0x21, 0x43] + [0] * 14], np.uint8), "e2m1_padded")[0, :4].tolist()
    [0.5, 1.0, 1.5, 2.0]
    """
    if dtype not in _SMALL:
        return to_float32(raw, dtype)
    if dtype == "e2m1":
        return _small_float(2, 1).take(np.stack([raw & 15, raw >> 4], axis=-1).reshape(*raw.shape[:-1], -1))
    chunks = raw.reshape(*raw.shape[:-1], -1, 16)
    if dtype == "e2m1_padded":
        packed = chunks[..., :8]
        codes = np.stack([packed & 15, packed >> 4], axis=-1)
    else:
        three = chunks[..., :12].reshape(*chunks.shape[:-1], 4, 3).astype(np.uint32)
        word = three[..., 0] | three[..., 1] << 8 | three[..., 2] << 16
        codes = np.stack([word >> shift & 63 for shift in (0, 6, 12, 18)], axis=-1)
    return _small_float(*_SMALL[dtype]).take(codes.reshape(*raw.shape))


# -- where the accumulator lies --------------------------------------------------------------------------------------------------


def accumulator_views(form: Form, array: NDArray[Any], lane: int, column: int) -> list[tuple[NDArray[Any], slice]]:
    """Views of an array (128, 512) that hold the accumulator, each with the slice of D's columns it holds: rows in order.

    A view is (rows, columns), or (4, 16, columns) where the rows lie in quarters.
    """
    end = column + form.columns
    if form.letter in "DA":
        return [(array[:, column:end], slice(0, form.n))]
    if form.letter in "FC":
        quarters = array.reshape(4, 32, -1)
        return [(quarters[:, lane : lane + 16, column:end], slice(0, form.n))]
    rows, width = LANES // (form.n // form.columns), form.columns
    return [
        (array[part * rows : (part + 1) * rows, column:end], slice(part * width, (part + 1) * width))
        for part in range(LANES // rows)
    ]


def accumulator_lanes(form: Form, lane: int) -> list[NDArray[np.intp]]:
    """The lane of every row, for each of the views."""
    every = np.arange(LANES)
    if form.letter in "DA":
        return [every]
    if form.letter in "FC":
        return [every.reshape(4, 32)[:, lane : lane + 16].reshape(-1)]
    parts = form.n // form.columns
    return list(every.reshape(parts, -1))


def check_accumulator(form: Form, lane: int) -> None:
    """The lanes at which an accumulator may start: 0, and 16 for the 64-row layouts that leave every second half free."""
    allowed = (0, 16) if form.letter in "FC" else (0,)
    if lane not in allowed:
        raise TensorMemoryError(
            "misaligned",
            f"an accumulator of {form.descriptor.m} rows (layout {form.letter}) from lane {lane}: it may start at lane "
            f"{' or '.join(map(str, allowed))}",
        )


# -- operands --------------------------------------------------------------------------------------------------------------------


def _bytes(table: ChunkTable, shared: SharedMemory) -> NDArray[np.uint8]:
    return read_chunks(shared, table).view(np.uint8)


def _memory_operand(
    form: Form, memory: TensorMemory, steps: Sequence[Step], lanes: NDArray[np.intp]
) -> NDArray[np.uint8]:
    """A from tensor memory: packed along k in each lane."""
    width = form.a_columns
    parts = []
    for step in steps:
        if memory.decompressed or form.small_bits:
            held = memory.formats[:, step.a : step.a + width][lanes]
            memory.require_format(held, form.small_bits, "tcgen05.mma (A)")
        state = memory.written[:, step.a : step.a + width][lanes]
        memory.require_written(state, lanes, step.a, "tcgen05.mma (A)")
        parts.append(memory.words[lanes, step.a : step.a + width])
    return np.ascontiguousarray(np.concatenate(parts, axis=1)).view(np.uint8)


def memory_operand(form: Form, memory: TensorMemory, step: Step, lane: int) -> NDArray[np.uint8]:
    """The bytes of an A in tensor memory, all that the views of a D from that lane on take."""
    return np.concatenate([_memory_operand(form, memory, (step,), lanes) for lanes in accumulator_lanes(form, lane)])


def _left(
    form: Form, side: Side, steps: Sequence[Step], table: ChunkTable | None, view: int, lane: int
) -> NDArray[np.float32]:
    """A's values for one view of D: (rows, k)."""
    if table is not None:
        values = values_of(_bytes(table, side.shared), form.stored(form.descriptor.a))
        return values if form.descriptor.a_major == "k" else values.T
    # Of the 64-row layouts of a pair both copies of A are read: each for its half of D's columns.
    raw = _memory_operand(form, side.memory, steps, accumulator_lanes(form, lane)[view])
    if form.small_bits:
        return _small_float(*_SMALL[form.descriptor.a]).take(raw)
    return values_of(raw, form.descriptor.a)


# -- scale factors ---------------------------------------------------------------------------------------------------------------


def scale_columns_of(form: Form) -> tuple[int, int]:
    """Columns of tensor memory that hold the scale factors of A and of B: one for every 32 rows, of B for all of the pair's N."""
    return -(-form.rows // 32), -(-form.n // 32)


SCALE_LEAST = {"ue8m0": -127, "ue4m3": -6}
"""Exponents of the smallest normal scale factors."""


def _scale_values(raw: NDArray[np.uint8], kind: str) -> NDArray[np.float32]:
    """ue8m0: 2^(x - 127), 255 is NaN; ue4m3: e4m3 without a sign."""
    if kind == "ue4m3":
        if (raw & 0x80).any():
            raise DescriptorError("unknown", "a ue4m3 scale factor with its top bit set: it must be 0")
        return to_float32(raw, "e4m3")
    with np.errstate(over="ignore"):  # 255, which is NaN below
        values = np.ldexp(np.float32(1), raw.astype(np.int32) - 127)
    return np.where(raw == 255, np.float32(np.nan), values).astype(np.float32)


def _scales(form: Form, memory: TensorMemory, steps: Sequence[Step]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Factors of A (rows, k) and of B (k, n) of one instruction, as this block's tensor memory holds them.

    Row r has lane r % 32 of column r / 32, and the same in the three other quarters of lanes; the id picks a byte of the column (PTX ISA 9.1, section
    9.7.16.10.5). Which quarter the hardware reads is not known, so all four must agree.
    """
    step, fields = steps[0], form.descriptor
    found = []
    for column, rows, first in (
        (step.scale_a, form.rows, fields.scale_a_id),
        (step.scale_b, form.n, fields.scale_b_id),
    ):
        width = -(-rows // 32)
        what = "tcgen05.mma (scale factors)"
        memory.require_written(memory.written[:, column : column + width], np.arange(LANES), column, what)
        if memory.decompressed:
            memory.require_format(memory.formats[:, column : column + width], 0, what)
        words = np.ascontiguousarray(memory.words[:, column : column + width])
        each = form.k // form.vector
        raw = words.view(np.uint8).reshape(4, 32, width, 4)[..., first : first + each]
        if (raw != raw[0]).any():
            raise TensorMemoryError(
                "scale factors",
                f"the scale factors in columns {column}..{column + width - 1} differ between the quarters of 32 lanes: each must hold "
                "a copy (tcgen05.cp.32x128b.warpx4 makes them)",
            )
        values = _scale_values(raw[0].transpose(1, 0, 2).reshape(32 * width, each)[:rows], fields.scale)
        found.append(np.repeat(values, form.vector, axis=1))
    return found[0], found[1].T


# -- the product -----------------------------------------------------------------------------------------------------------------


def run(
    form: Form,
    sides: Sequence[Side],
    steps: Sequence[Step],
    d: tuple[int, int],
    accumulate: bool,
    numerics: str,
    arch: str,
    scale: int = 0,
    enabled: Sequence[NDArray[np.bool_]] | None = None,
) -> None:
    """Computes `steps` (one, or several that all but the first accumulate) into the accumulator at (lane, column) `d`.

    `scale`: D enters as D * 2^-scale. `enabled`: for each block which of its 128 lanes are written.
    """
    tables = [operand_tables(form, side.shared, steps, arch) for side in sides]
    right = [_bytes(table, side.shared) for (_, table), side in zip(tables, sides, strict=True)]
    fields = form.descriptor
    b = right[0] if len(right) == 1 else np.concatenate(right, axis=0 if fields.b_major == "k" else 1)
    factor = None
    if numerics == "float32":
        factor = values_of(b, form.stored(fields.b))
        factor = factor.T if fields.b_major == "k" else factor
    for number, (side, (left, _)) in enumerate(zip(sides, tables, strict=True)):
        memory = side.memory
        lanes = accumulator_lanes(form, d[0])
        states = accumulator_views(form, memory.written, *d)
        formats = accumulator_views(form, memory.formats, *d) if memory.decompressed else None
        for view, (words, columns) in enumerate(accumulator_views(form, memory.words, *d)):
            a = _left(form, side, steps, left, view, d[0])
            rows = None if enabled is None else enabled[number][lanes[view]]
            state = states[view][0]
            if formats is not None:
                held = formats[view][0]
                if accumulate or rows is not None:
                    memory.require_format(held, 0, "tcgen05.mma (D)")
                held[...] = 0
            if accumulate:
                known = state if rows is None else state.reshape(-1, state.shape[-1])[rows]
                memory.require_written(
                    known, lanes[view] if rows is None else lanes[view][rows], d[1], "tcgen05.mma (D)"
                )
            start = words.reshape(-1, words.shape[-1]) if words.ndim == 3 else words
            scales = _scales(form, memory, steps) if form.vector else None
            if factor is not None:
                found = _float32(form, a, factor[:, columns], start, accumulate, scale, scales)
            else:
                part = b[columns] if fields.b_major == "k" else _columns(form, b, columns)
                found = _hardware(form, a, part, start, accumulate, scale, scales)
            if rows is None:
                words[...] = found.reshape(words.shape)
                state[...] = True
            else:
                flat_words, flat_state = (
                    words.reshape(-1, words.shape[-1]).copy(),
                    state.reshape(-1, state.shape[-1]).copy(),
                )
                flat_words[rows], flat_state[rows] = found[rows], True
                words[...], state[...] = flat_words.reshape(words.shape), flat_state.reshape(state.shape)


def _columns(form: Form, b: NDArray[np.uint8], columns: slice) -> NDArray[np.uint8]:
    """Some of D's columns of an MN-major B."""
    size = b.shape[1] // form.n
    return np.ascontiguousarray(b[:, columns.start * size : columns.stop * size])


@functools.lru_cache(maxsize=1024)
def _block_width(rows: int, n: int, k: int) -> int:
    most = max(_ONE_THREAD // (rows * k), 8)
    return next(width for width in range(min(n, most), 0, -1) if n % width == 0)


def _float32(
    form: Form,
    left: NDArray[np.float32],
    factor: NDArray[np.float32],
    start: NDArray[np.uint32],
    accumulate: bool,
    scale: int,
    scales: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None,
) -> NDArray[np.uint32]:
    """The accumulator's new words (rows, columns). `left` (rows, k), `factor` (k, columns); `scales`: factors of A (rows, k) and of B (k, columns)."""
    fields = form.descriptor
    if fields.negate_a != fields.negate_b:
        left = -left
    if scales is not None:
        left, factor = left * scales[0], factor * scales[1]
    rows, (k, n) = left.shape[0], factor.shape
    width = _block_width(rows, n, k)
    product = np.empty((rows, n), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        blocks = factor.reshape(k, n // width, width).transpose(1, 0, 2)
        np.matmul(left, blocks, out=product.reshape(rows, -1, width).transpose(1, 0, 2))
        if fields.d == "s32":
            return _integers(product.astype(np.int64), start, accumulate, fields.saturate)
        if fields.d == "f16":
            if accumulate:
                product += start.astype(np.uint16).view(np.float16) * np.float32(2.0**-scale)
            return product.astype(np.float16).view(np.uint16).astype(np.uint32)
        if accumulate:
            before = np.ascontiguousarray(start).view(np.float32)
            product += before * np.float32(2.0**-scale) if scale else before
    return product.view(np.uint32)


def _integers(
    product: NDArray[np.int64], start: NDArray[np.uint32], accumulate: bool, saturate: bool
) -> NDArray[np.uint32]:
    if accumulate:
        product = product + np.ascontiguousarray(start).view(np.int32)
    if saturate:
        product = np.clip(product, -(1 << 31), (1 << 31) - 1)
    return product.astype(np.int32).view(np.uint32)


def _hardware(
    form: Form,
    left: NDArray[np.float32],
    b: NDArray[np.uint8],
    start: NDArray[np.uint32],
    accumulate: bool,
    scale: int,
    scales: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None,
) -> NDArray[np.uint32]:
    """One instruction by the published model. `scales` as in _float32: one factor a row and a column."""
    fields = form.descriptor
    right = values_of(b, form.stored(fields.b))
    right = right if fields.b_major == "k" else right.T
    if fields.d == "s32":
        return _integers((left @ right.T).astype(np.int64), start, accumulate, fields.saturate)
    left, right = (-left if fields.negate_a else left), (-right if fields.negate_b else right)
    half = fields.d == "f16"
    before = np.zeros(start.shape, np.float64)
    if accumulate:
        words = np.ascontiguousarray(start)
        with np.errstate(invalid="ignore"):
            before = (words.astype(np.uint16).view(np.float16) if half else words.view(np.float32)).astype(np.float64)
            before *= 2.0**-scale
    factor = None
    if scales is not None and fields.kind != "mxf8f6f4":
        of_a, of_b = (one[:, ::FP4_GROUP].astype(np.float64) for one in (scales[0], scales[1].T))
        return group_sum(left, right, before, of_a, of_b, SCALE_LEAST[fields.scale])
    if scales is not None:
        factor = scales[0][:, :1].astype(np.float64) * scales[1][:1, :].astype(np.float64)
    return tensor_sum(left, right, before, fields.a, fields.b, fields.d, factor).astype(np.uint32)
