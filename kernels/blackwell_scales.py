"""Block scaling in the Blackwell GEMM: where the factors of a tile lie, the rules they add, and the step of the derivation.

Formats with factors have names of their own (mxfp8, mxfp4, nvfp4 and so on); everything here follows from the atom of
128 rows x 4 factors in :mod:`stridewright.layout.hardware.scale_factors`. Nothing here was run on a Blackwell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stridewright.layout import Layout
from stridewright.layout.hardware import MatrixDescriptor, TensorMap, scale_smem_layout
from stridewright.layout.hardware.scale_factors import (
    ATOM_BYTES,
    ATOM_ROWS,
    ATOM_SCALES,
    SCALED_TYPES,
    ScaledType,
    ScaleSlot,
    ScaleTensor,
    scaled_kind,
)

from .config import GemmConfig, Problem, Violation, is_size
from .hopper import AddressFunction, Constant, Step

if TYPE_CHECKING:
    from .blackwell import Derivation

TILE_N_UNIT = 64
"""Rows of B that a tile is a multiple of: it may begin inside an atom of 128 rows, and NVIDIA's kernels do at half of one
(CuTe DSL, dense_blockscaled_gemm_persistent.py: N of 64 and 192)."""

ID_BITS = 1 << 29 | 1 << 4
"""One scale factor id more for A and for B, in the instruction descriptor (PTX ISA 9.1, tables 43 and 44)."""


def scaled_types(problem: Problem) -> tuple[ScaledType, ScaledType] | None:
    """The formats of A and B if both have factors and one kind multiplies them; else None.

    >>> one, other = scaled_types(Problem(a="mxfp8", b="mxfp4"))
    >>> one.element, other.element, scaled_types(Problem())
    ('e4m3', 'e2m1', None)
    """
    if not scaled_kind(problem.a, problem.b):
        return None
    return SCALED_TYPES[problem.a], SCALED_TYPES[problem.b]


def multiply_words(problem: Problem) -> str:
    """What the instruction's name says beyond its kind: the block that a factor stands for.

    >>> multiply_words(Problem(a="nvfp4", b="nvfp4")), multiply_words(Problem())
    ('.block_scale.block16', '')
    """
    types = scaled_types(problem)
    return f".block_scale.block{types[0].vector}" if types else ""


@dataclass(frozen=True)
class TileScales:
    """The factors of a tile in one CTA: those of its rows of A, and of all rows of B (of whole atoms)."""

    a: ScaleSlot
    b: ScaleSlot
    vector: int
    dtype: str
    step_k: int

    @property
    def columns(self) -> int:
        """Columns of tensor memory that a slot's factors take."""
        return self.a.columns + self.b.columns

    @property
    def atom_k(self) -> int:
        """Elements of K of an atom."""
        return self.vector * ATOM_SCALES


def tile_scales(config: GemmConfig, step_k: int) -> TileScales | None:
    """The factors that a tile needs; None where the formats have none. ``step_k``: elements of K of an instruction.

    >>> scales = tile_scales(GemmConfig(arch="sm_100a", problem=Problem(a="nvfp4", b="nvfp4")).replace(tile_n=192, tile_k=256), 64)
    >>> scales.a.atoms, scales.b.atoms, scales.columns
    ((1, 4), (2, 4), 48)
    """
    types = scaled_types(config.problem)
    if types is None:
        return None
    tile, vector = config.tile, types[0].vector
    rows = tile.m // (2 if config.cluster.pair else 1)
    # A tile that begins inside an atom reaches as much further.
    inside = max((start * tile.n % ATOM_ROWS for start in range(ATOM_ROWS // TILE_N_UNIT)), default=0)
    return TileScales(
        a=ScaleSlot(rows, tile.k, vector, step_k),
        b=ScaleSlot(tile.n + inside, tile.k, vector, step_k),
        vector=vector,
        dtype=types[0].scale,
        step_k=step_k,
    )


def scale_tensors(problem: Problem, m: int, n: int, k: int) -> tuple[ScaleTensor, ScaleTensor]:
    """How the factors of A and of B lie in global memory, for a problem's sizes in elements. The formats must have factors.

    >>> [one.shape for one in scale_tensors(Problem(a="mxfp8", b="mxfp8"), 200, 64, 512)]
    [(2, 4, 32, 4, 4), (1, 4, 32, 4, 4)]
    """
    types = scaled_types(problem)
    if types is None:
        raise ValueError(f"{problem.a} and {problem.b} have no factors")
    return (
        ScaleTensor("scale_a", m, k, types[0].vector, types[0].scale),
        ScaleTensor("scale_b", n, k, types[1].vector, types[1].scale),
    )


def scale_map(tensor: ScaleTensor, slot: ScaleSlot, arch: str) -> TensorMap:
    """The tensor map of the factors of one operand: (half an atom's bytes, atoms along K, atoms along the rows), and a box of
    a slot's atoms. Two bytes are one element, so that an atom is one run of 256.

    >>> scale_map(ScaleTensor("scale_a", 300, 1024), ScaleSlot(128, 256, 32, 64), "sm_100a").box
    (256, 2, 1)
    """
    down, along = tensor.atoms
    box_down, box_along = slot.atoms
    layout = tensor.layout
    step = int(layout(0, tensor.vector * ATOM_SCALES)) if along > 1 else ATOM_BYTES
    block = int(layout(ATOM_ROWS, 0)) if down > 1 else ATOM_BYTES * along
    return TensorMap(
        dtype="u16",
        shape=(ATOM_BYTES // 2, along, down),
        strides_bytes=(step, block),
        box=(ATOM_BYTES // 2, box_along, box_down),
        swizzle="none",
        arch=arch,
    )


# -- rules ------------------------------------------------------------------------------------------------------------------------


def format_violations(problem: Problem) -> Iterator[Violation]:
    """What does not go together with factors: formats, majors, K.

    >>> [str(one) for one in format_violations(Problem(a="nvfp4", b="mxfp4"))]
    ["b='mxfp4': no kind of tcgen05.mma multiplies it with nvfp4; b='nvfp4'"]
    """
    scaled = [name for name in ("a", "b") if getattr(problem, name) in SCALED_TYPES]
    if not scaled:
        return
    kind = scaled_kind(problem.a, problem.b)
    if not kind:
        own = problem.a if "a" in scaled else problem.b
        partners = [name for name in SCALED_TYPES if scaled_kind(own, name)]
        other = "b" if "a" in scaled else "a"
        yield Violation(
            parameter=other,
            value=repr(getattr(problem, other)),
            rule=f"no kind of tcgen05.mma multiplies it with {own}",
            fix=" or ".join(
                [f"{other}={partners[0]!r}"] if len(partners) == 1 else [f"{other} may be {', '.join(partners)}"]
            ),
        )
        return
    if problem.form != "one":
        yield Violation(
            parameter="form",
            value=repr(problem.form),
            rule="several products of block-scaled operands in one launch have no kernel yet: factors of one matrix are loaded",
            fix="one launch each",
        )
    vector, k = SCALED_TYPES[problem.a].vector, problem.k
    unit = max(vector, 32)
    if is_size(k) and k is not None and k > 0 and k % unit:
        near = ", ".join(str(one) for one in (k // unit * unit, (k // unit + 1) * unit) if one)
        why = f"{vector} elements share a factor" + (
            "" if unit == vector else ", and TMA wants rows of packed 4-bit elements to start at multiples of 16 bytes"
        )
        yield Violation(
            parameter="k",
            value=k,
            rule=f"must be a multiple of {unit}: {why}",
            fix=f"nearest {near}: pad with zeros before quantising, which changes no result",
        )


def tile_violations(config: GemmConfig) -> Iterator[Violation]:
    """What factors ask of a tile.

    >>> config = GemmConfig(arch="sm_100a", problem=Problem(a="mxfp8", b="mxfp8")).replace(tile_m=64, tile_n=80)
    >>> [one.parameter for one in tile_violations(config)]
    ['tile_m', 'tile_n', 'tile_k']
    """
    types = scaled_types(config.problem)
    if types is None:
        return
    tile, pair = config.tile, bool(config.cluster.pair)
    rows = 256 if pair else 128
    if tile.m != rows:
        why = (
            "of a pair's 128 rows nobody has said where the factors lie"
            if pair
            else "block scaling takes 128 rows of A for each CTA (PTX ISA 9.1, table 39)"
        )
        yield Violation(parameter="tile_m", value=tile.m, rule=f"must be {rows}: {why}", fix=f"tile_m={rows} works")
    if tile.n % TILE_N_UNIT:
        below = tile.n // TILE_N_UNIT * TILE_N_UNIT
        near = ", ".join(str(one) for one in (below, below + TILE_N_UNIT) if 0 < one <= 256)
        yield Violation(
            parameter="tile_n",
            value=tile.n,
            rule=f"must be a multiple of {TILE_N_UNIT}: factors lie in atoms of {ATOM_ROWS} rows, which tiles may halve",
            fix=f"nearest {near}",
        )
    atom = types[0].vector * ATOM_SCALES
    if tile.k % atom:
        near = ", ".join(str(one) for one in (tile.k // atom * atom, (tile.k // atom + 1) * atom) if one)
        yield Violation(
            parameter="tile_k",
            value=tile.k,
            rule=f"must be a multiple of {atom}: an atom holds {ATOM_SCALES} factors a row, of {types[0].vector} elements each",
            fix=f"nearest {near}",
        )


# -- the derivation's step --------------------------------------------------------------------------------------------------------


def scale_step(derivation: Derivation) -> Step:
    """How factors come from global memory to where the multiply reads them, in words and constants."""
    scales, config = derivation.scales, derivation.config
    if scales is None:
        raise AssertionError(f"{config.problem} has no factors")
    stages = config.pipeline.stages
    columns = [derivation.plan[f"scale factors of slot {slot}"].column for slot in range(stages)]
    first, slots = columns[0], Layout(stages, scales.columns if stages > 1 else 0)
    if [first + slots(slot) for slot in range(stages)] != columns:
        raise AssertionError(f"scale factors of {derivation.plan.explain()} are not evenly apart")
    functions, constants, notes = [], [], []
    for name, slot, before in (("a", scales.a, 0), ("b", scales.b, scales.a.columns)):
        down, along = slot.atoms
        units = tuple(stride // 16 for stride in slot.source.stride)
        constants += [
            Constant("uint32", f"SCALE_{name.upper()}_SLOT_BYTES", slot.bytes),
            Constant("int", f"SCALE_{name.upper()}_ATOMS", down * along),
            Constant("uint32", f"SCALE_{name.upper()}_COLUMN", first + before),
        ]
        functions += [
            AddressFunction(
                f"scale_{name}_from", ("atom",), Layout(((down, along),), (units,)), "units of 16 bytes of the slot"
            ),
            AddressFunction(
                f"scale_{name}_to", ("atom",), Layout((slot.destination.shape,), (slot.destination.stride,)), "columns"
            ),
            AddressFunction(f"scale_{name}_step", ("step",), slot.step_columns, "columns"),
        ]
        notes.append(
            f"{name.upper()}: {down} x {along} atoms a slot, {slot.bytes} bytes and {slot.columns} columns; (row, element of K) -> byte {slot.shared}"
        )
        notes.append(
            f"   -> lane << 18 | column << 2 | byte of tensor memory {slot.memory}, the same in each quarter of lanes."
        )
    functions.append(AddressFunction("scale_columns", ("slot",), slots, "columns"))
    ids = scales.a.step_ids
    functions.append(
        AddressFunction("scale_ids", ("step",), _scaled(ids, ID_BITS), "instruction descriptor: ids of A and of B")
    )
    word = MatrixDescriptor(config.arch, 0, 16, ATOM_BYTES // 32 * 8, "none").encode()
    return Step(
        title="Scale factors",
        layouts=(
            (
                "an atom: (row, element of K) -> byte",
                str(scale_smem_layout(ATOM_ROWS, scales.vector)),
            ),
        ),
        notes=(
            f"{scales.dtype}, one for each {scales.vector} elements of K of a row. TMA: boxes of whole atoms; the barrier expects "
            f"{scales.a.bytes + scales.b.bytes} bytes more.",
            *notes,
            f"tcgen05.cp.32x128b.warpx4 copies an atom; its descriptor at address 0: {word:#018x}.",
            f"Step along K -> scale factor id: {ids}.",
        ),
        constants=(
            *constants,
            Constant("uint32", "SCALE_ATOM_ROWS", ATOM_ROWS),
            Constant("uint32", "SCALE_ATOM_K", scales.atom_k),
            Constant("uint64", "SCALE_DESCRIPTOR", word, hexadecimal=True),
        ),
        functions=tuple(functions),
    )


def _scaled(layout: Layout, by: int) -> Layout:
    def each(stride: object) -> object:
        return tuple(each(one) for one in stride) if isinstance(stride, tuple) else stride * by  # type: ignore[operator]

    return Layout(layout.shape, each(layout.stride))
