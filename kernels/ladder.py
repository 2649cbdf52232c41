"""The Hopper ladder as data: numbered rungs from the naive kernel to the fastest, each one idea more, and what follows from
their layouts.

Every rung is a hand-written file in ``cuda/ladder``; the constants above it are derived here from the layouts of its tiles, as
``hopper`` derives the product kernel's. The sequence of ideas is that of a public worklog (pranjalssh, "Outperforming cuBLAS on
H100", github.com/pranjalssh/fast.cu) with Tilus' first version between its first two (1b) and one idea before the stores that
every kernel of the worklog waits without (9b); the code is not.

Knows layouts and the chip's encodings; knows nothing of compilers or of arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from stridewright.layout import Layout, SwizzledLayout, coalesce, compose, cosize, right_inverse, size
from stridewright.layout.hardware import TensorMap, decode_matrix_descriptor
from stridewright.layout.hardware.canonical import k_advance, matrix_descriptor
from stridewright.layout.hardware.fragments import (
    ldmatrix_layout,
    mma_a_layout,
    mma_b_layout,
    mma_d_layout,
    wgmma_d_layout,
)

from .hopper import (
    ELEMENT_BYTES,
    PANEL_COLUMNS,
    AddressFunction,
    Constant,
    Step,
    accumulator_columns,
    accumulator_rows,
    byte_offsets,
    stmatrix_rows,
    swizzled_tile,
    worst_report,
)

ARCH = "sm_90a"
ALIGNMENT = 1024
"""Bytes asked for beyond the map, so that the tiles can start at a multiple of 1024: the swizzle acts on address bits."""

ARGUMENTS_PLAIN = ("a", "a_row_stride", "b", "b_row_stride", "d", "d_row_stride", "m", "n", "k")
ARGUMENTS_TMA = ("map_a", "map_b", "d", "d_row_stride", "m", "n", "k")
ARGUMENTS_STAGED = ("map_a", "map_b", "map_d", "d", "d_row_stride", "m", "n", "k")
ARGUMENTS_TABLE = (*ARGUMENTS_STAGED, "order", "tiles")


@dataclass(frozen=True, kw_only=True)
class RungSpec:
    """One rung: its idea, its parameters, and what the public source saw it bring."""

    number: str
    title: str
    idea: str
    """What it adds to the rung before and why that is faster."""
    published: float | None
    """Its speed as a ratio to cuBLAS in the same run, as the public source's own kernel of that rung reached it on an H200:
    bf16 at 4096 cubed, where not said otherwise. None where there is no such figure."""
    published_note: str = ""
    file: str = ""
    """Its file in ``cuda/ladder``; "" for the product's kernel, which is not one file."""
    multiply: Literal["fma", "mma.sync", "wgmma"] = "wgmma"
    arguments: tuple[str, ...] = ARGUMENTS_TMA
    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    threads: int = 128
    ctas_per_sm: int = 1
    """CTAs that the registers must leave room for on an SM (rungs 1 and 1b)."""
    stages: int = 1
    consumers: int = 1
    registers: tuple[int, int] | None = None
    """What setmaxnreg leaves a producer thread and gives a consumer thread."""
    persistent: bool = False
    order: Literal["row", "grouped", "hilbert"] = "row"
    group_m: int = 0
    cluster_m: int = 1
    staging_buffers: int = 0
    """Panels of shared memory that a consumer stores from in turn; 0: results leave registers by plain stores."""

    @property
    def staged(self) -> bool:
        """Whether results leave through shared memory, where D's rows allow it."""
        return self.staging_buffers > 0


_WARP_SPECIALISED = {"threads": 256, "stages": 5}
_TWO_CONSUMERS = {"tile_n": 256, "threads": 384, "stages": 4, "consumers": 2, "registers": (24, 240)}
# 132 tiles of 128 x 256 in groups of 16 rows cover about 2048 x 2112 of D: nearly a square, which needs the fewest panels.
_PERSISTENT = {**_TWO_CONSUMERS, "persistent": True, "order": "grouped", "group_m": 16}
# A cluster takes two tiles above one another, so that groups of eight of its rows are as high as before.
_CLUSTER = {**_PERSISTENT, "group_m": 8, "cluster_m": 2}
_STAGED = {**_CLUSTER, "arguments": ARGUMENTS_STAGED, "staging_buffers": 2}

RUNGS: tuple[RungSpec, ...] = (
    RungSpec(
        number="1",
        title="no tensor cores",
        idea="tiles in shared memory, 8 x 8 sums a thread in registers, ordinary multiply-adds",
        published=0.03 * 989 / 771,
        published_note="3 % of the chip's peak, 989 TFLOP/s",
        file="rung_01.cuh",
        multiply="fma",
        arguments=ARGUMENTS_PLAIN,
        tile_k=16,
        threads=256,
        ctas_per_sm=2,
    ),
    RungSpec(
        number="1b",
        title="TMA and mma.sync",
        idea="the copy engine loads swizzled tiles; warps multiply fragments in their registers (ldmatrix, mma.sync)",
        published=0.38,
        published_note="Tilus' first version, f16, 8192 cubed",
        file="rung_01b.cuh",
        multiply="mma.sync",
        threads=256,
        ctas_per_sm=2,
    ),
    RungSpec(
        number="2",
        title="wgmma and TMA",
        idea="a warpgroup's multiply reads both operands from shared memory: load, multiply, load, multiply",
        published=378 / 771,
        file="rung_02.cuh",
        tile_m=64,
        tile_n=64,
    ),
    RungSpec(
        number="3",
        title="larger tile",
        idea="128 x 128 instead of 64 x 64: half the loads for each multiply",
        published=411 / 771,
        file="rung_03.cuh",
    ),
    RungSpec(
        number="4",
        title="warp specialisation",
        idea="a producer fills a ring of slots while a consumer multiplies; full and empty barriers between them",
        published=543 / 771,
        file="rung_04.cuh",
        **_WARP_SPECIALISED,  # type: ignore[arg-type]
    ),
    RungSpec(
        number="5",
        title="two consumers, 128 x 256",
        idea="fewer loads again; one consumer's multiplies cover the other's waits; registers go from the producer to them",
        published=641 / 771,
        file="rung_05.cuh",
        **_TWO_CONSUMERS,  # type: ignore[arg-type]
    ),
    RungSpec(
        number="6",
        title="persistent, L2 order",
        idea="one CTA an SM takes tile after tile, loading the next under the last one's stores, in an order that shares panels in L2",
        published=653 / 771,
        file="rung_06.cuh",
        **_PERSISTENT,  # type: ignore[arg-type]
    ),
    RungSpec(
        number="7",
        title="cheap barriers",
        idea="one elected arrival a warp instead of one a thread; who only waits does not arrive, but tests a parity",
        published=726 / 771,
        file="rung_07.cuh",
        **_PERSISTENT,  # type: ignore[arg-type]
    ),
    RungSpec(
        number="8",
        title="cluster multicast",
        idea="two CTAs above one another load half of their tile of B each, for both",
        published=734 / 771,
        file="rung_08.cuh",
        **_CLUSTER,  # type: ignore[arg-type]
    ),
    RungSpec(
        number="9",
        title="fewer instructions",
        idea="descriptors made once and advanced by additions, no modulo, no zeroing of the sums",
        published=743 / 771,
        file="rung_09.cuh",
        **_CLUSTER,  # type: ignore[arg-type]
    ),
    RungSpec(
        number="9b",
        title="one batch in flight",
        idea="a slot's multiplies are issued before those of the slot before are awaited: a tensor core is never without",
        published=None,
        file="rung_09b.cuh",
        **_CLUSTER,  # type: ignore[arg-type]
    ),
    RungSpec(
        number="10",
        title="asynchronous stores",
        idea="results go to shared memory without conflicts, and from there to D by the copy engine, under the next tile",
        published=752 / 771,
        file="rung_10.cuh",
        **_STAGED,  # type: ignore[arg-type]
    ),
    RungSpec(
        number="11",
        title="Hilbert order",
        idea="any stretch of consecutive tiles is a compact patch of D: fewer panels in L2 at a time",
        published=758 / 771,
        file="rung_11.cuh",
        **{**_STAGED, "arguments": ARGUMENTS_TABLE, "order": "hilbert", "group_m": 0},  # type: ignore[arg-type]
    ),
    RungSpec(
        number="12",
        title="stridewright's kernel",
        idea="the product's family, configured for the shape: tile, schedule, cluster and order together; launches that overlap",
        published=770 / 771,
    ),
)
"""All rungs, in order. The last one's kernel is the product's own; its parameters here mean nothing."""


def find(number: str) -> RungSpec:
    """The rung of this number. Raises ValueError, naming all numbers, if there is none.

    >>> find("1b").title
    'TMA and mma.sync'
    """
    for spec in RUNGS:
        if spec.number == number:
            return spec
    raise ValueError(f"rung {number}: there is none; the rungs are {', '.join(spec.number for spec in RUNGS)}")


def gain(number: str) -> float | None:
    """How much faster than its own rung before the public source's was, as a ratio; None where it has none, and where the two
    figures are not of one source, one shape and one type.

    >>> round(gain("7"), 3), gain("2"), gain("9b"), round(gain("10"), 3)
    (1.112, None, None, 1.012)
    """
    here = find(number)
    before = [spec for spec in RUNGS[: RUNGS.index(here)] if spec.published is not None]
    if here.published is None or not before or here.published_note != before[-1].published_note:
        return None
    assert before[-1].published is not None
    return here.published / before[-1].published


@dataclass(frozen=True)
class RungDerivation:
    """What follows from a rung's layouts: the steps that the generator writes above the kernel, and what a launch needs."""

    spec: RungSpec
    staged: bool
    """Whether results leave through shared memory: the rung does that, and D's rows are multiples of 16 bytes."""
    steps: tuple[Step, ...]
    shared_map: tuple[tuple[str, int, int], ...]
    """(what, offset, bytes) of each part of the dynamic shared memory."""

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory to ask for, alignment included; 0 for the rung that has none."""
        return sum(part[2] for part in self.shared_map) + ALIGNMENT if self.shared_map else 0

    def tensor_maps(
        self,
        m: int,
        n: int,
        k: int,
        a_row_bytes: int | None = None,
        b_row_bytes: int | None = None,
        d_row_bytes: int | None = None,
    ) -> dict[str, TensorMap]:
        """The tensor maps of a launch by argument, for sizes in elements and row pitches in bytes (dense if None). The boxes
        follow from the layouts in shared memory.

        >>> derive(find("8")).tensor_maps(512, 512, 256)["map_b"].box
        (64, 128)
        """
        spec = self.spec

        def tensor_map(rows: int, columns: int, row_bytes: int | None, tile: SwizzledLayout) -> TensorMap:
            pitch = columns * ELEMENT_BYTES if row_bytes is None else row_bytes
            return TensorMap.from_layouts(Layout((rows, columns), (pitch // ELEMENT_BYTES, 1)), tile, "bf16", arch=ARCH)

        if "map_a" not in spec.arguments:
            return {}
        maps = {
            "map_a": tensor_map(m, k, a_row_bytes, swizzled_tile(spec.tile_m, spec.tile_k)),
            "map_b": tensor_map(n, k, b_row_bytes, swizzled_tile(spec.tile_n // spec.cluster_m, spec.tile_k)),
        }
        if self.staged:
            maps["map_d"] = tensor_map(m, n, d_row_bytes, swizzled_tile(64, PANEL_COLUMNS))
        return maps


def tiles(spec: RungSpec, m: int, n: int) -> tuple[int, int]:
    """Rows and columns of tiles, a cluster's together counting as one.

    >>> tiles(find("8"), 4096, 4096)
    (16, 16)
    """
    return -(-m // (spec.tile_m * spec.cluster_m)), -(-n // spec.tile_n)


@lru_cache(maxsize=64)
def derive(spec: RungSpec, storable: bool = True) -> RungDerivation:
    """Everything that follows from a rung's layouts. ``storable``: whether the copy engine can store D's rows, N being a
    multiple of 8. Raises ValueError for the last rung, whose kernel ``hopper`` derives.

    >>> derive(find("10")).shared_bytes <= 232448
    True
    """
    if not spec.file:
        raise ValueError(f"rung {spec.number} is the product's kernel: Gemm(m, n, k).derivation has its derivation")
    staged = spec.staged and storable
    if spec.multiply == "fma":
        return RungDerivation(spec, False, tuple(_plain_steps(spec)), ())
    shared_map = tuple(_shared_map(spec))
    steps = (*_tile_steps(spec, staged), _shared_step(shared_map), *_result_steps(spec))
    return RungDerivation(spec, staged, steps, shared_map)


def _shared_map(spec: RungSpec) -> Iterator[tuple[str, int, int]]:
    def tile_bytes(rows: int) -> int:
        return int(cosize(swizzled_tile(rows, spec.tile_k).layout)) * ELEMENT_BYTES

    lengths = {
        "tiles of A": tile_bytes(spec.tile_m) * spec.stages,
        "tiles of B": tile_bytes(spec.tile_n) * spec.stages,
        "staging of D": spec.consumers * spec.staging_buffers * 64 * PANEL_COLUMNS * ELEMENT_BYTES,
        "barriers": 8 * (2 * spec.stages if spec.stages > 1 else 1),
    }
    offset = 0
    for use, length in lengths.items():
        if length:
            yield use, offset, length
        offset += length


def _plain_steps(spec: RungSpec) -> Iterator[Step]:
    yield Step(
        title="The tile, and who computes it",
        notes=(
            f"A CTA computes {spec.tile_m} x {spec.tile_n} of D, {spec.threads} threads with 8 x 8 sums each; its K in steps of {spec.tile_k}.",
        ),
        constants=(
            Constant("int", "TILE_M", spec.tile_m),
            Constant("int", "TILE_N", spec.tile_n),
            Constant("int", "TILE_K", spec.tile_k),
            Constant("int", "THREADS", spec.threads),
            Constant("int", "CTAS_PER_SM", spec.ctas_per_sm),
        ),
    )


def _tile_steps(spec: RungSpec, staged: bool) -> Iterator[Step]:
    constants = [
        Constant("int", "TILE_M", spec.tile_m),
        Constant("int", "TILE_N", spec.tile_n),
        Constant("int", "TILE_K", spec.tile_k),
        Constant("int", "THREADS", spec.threads),
    ]
    if spec.multiply == "mma.sync":
        constants += [
            Constant("int", "CTAS_PER_SM", spec.ctas_per_sm),
            Constant("int", "WARPS_N", WARPS[1]),
            Constant("int", "BLOCKS_M", spec.tile_m // WARPS[0] // 16),
            Constant("int", "BLOCKS_N", spec.tile_n // WARPS[1] // 8),
        ]
        who = f"{WARPS[0]} x {WARPS[1]} warps of {spec.tile_m // WARPS[0]} x {spec.tile_n // WARPS[1]} each, mma.sync m16n8k16"
    else:
        who = f"{spec.consumers} warpgroup{'s' * (spec.consumers > 1)} of {spec.tile_m // spec.consumers} rows each, wgmma m64n{spec.tile_n}k16"
        constants.append(Constant("int", "M_BLOCKS", spec.tile_m // spec.consumers // 64))
    if spec.stages > 1:
        constants += [
            Constant("int", "STAGES", spec.stages),
            Constant("int", "CONSUMER_THREADS", 128 * spec.consumers),
            Constant("int", "CONSUMER_WARPS", 4 * spec.consumers),
        ]
    if spec.registers is not None:
        constants += [
            Constant("int", name, count)
            for name, count in zip(("PRODUCER_REGISTERS", "CONSUMER_REGISTERS"), spec.registers, strict=True)
        ]
    if spec.group_m:
        constants.append(Constant("int", "GROUP_M", spec.group_m))
    if spec.cluster_m > 1:
        constants.append(Constant("int", "CLUSTER_M", spec.cluster_m))
    if spec.staged:
        constants.append(Constant("bool", "STAGED", int(staged)))
    yield Step(
        title="The tile, and who computes it",
        notes=(f"A CTA computes {spec.tile_m} x {spec.tile_n} of D at a time: {who}.",),
        constants=tuple(constants),
    )
    yield _operand_step("A", spec.tile_m, spec)
    yield _operand_step("B", spec.tile_n, spec)


WARPS = (2, 4)
"""Rung 1b's warps along M and along N."""


def _operand_step(name: str, rows: int, spec: RungSpec) -> Step:
    layout = swizzled_tile(rows, spec.tile_k)
    in_bytes = byte_offsets(layout)
    parts = spec.cluster_m if name == "B" else 1
    slot_bytes = cosize(layout.layout) * ELEMENT_BYTES
    layouts = [
        (f"({'m' if name == 'A' else 'n'}, k) -> element of the slot", str(layout)),
        ("the same in bytes", str(in_bytes)),
    ]
    notes = [
        f"TMA: box {spec.tile_k} x {rows // parts} elements, swizzle 128B; the barrier expects {slot_bytes} bytes, also where the box leaves the tensor."
    ]
    constants = [Constant("uint32", f"{name}_SLOT_BYTES", slot_bytes)]
    if spec.multiply == "mma.sync":
        fragment = fragment_rows(name, layout)
        function = AddressFunction(f"{name.lower()}_fragment_offset", ("lane", "block", "step"), fragment, "bytes")
        notes.append("ldmatrix x4: the address that a lane gives, for a block of 16 rows and a step of 16 of K.")
    else:
        descriptor = matrix_descriptor(layout, dtype="bf16", arch=ARCH, major="k", address=0)
        advance = k_advance(layout, dtype="bf16", arch=ARCH, major="k")
        step_bytes = compose(Layout(cosize(advance), 16), advance)
        notes += [
            f"Matrix descriptor at address 0: {descriptor:#018x}, K-major.",
            *(f"  {line}" for line in decode_matrix_descriptor(descriptor, ARCH).explain().splitlines()),
        ]
        constants.append(Constant("uint64", f"{name}_DESCRIPTOR", descriptor, hexadecimal=True))
        if name == "A" and rows > 64:
            constants.append(Constant("uint32", "A_BLOCK_BYTES", int(in_bytes.layout(64, 0))))
        if parts > 1:
            constants += [
                Constant("uint32", f"{name}_ROW_BYTES", int(in_bytes.layout(1, 0))),
                Constant("uint32", f"{name}_SLICE_ROWS", rows // parts),
            ]
        function = AddressFunction(
            f"{name.lower()}_step_bytes", ("step",), step_bytes, "bytes, before the swizzle, which acts on the sum"
        )
    return Step(
        title=f"A slot of {name}",
        layouts=tuple(layouts),
        notes=tuple(notes),
        constants=tuple(constants),
        functions=(function,),
    )


def fragment_rows(name: str, tile: SwizzledLayout) -> SwizzledLayout:
    """(lane, block, step) -> byte offset in the tile of the 16-byte row whose address that lane gives to ldmatrix x4, for
    the fragments of a block of 16 rows and 16 of K: one m16k16 fragment of A, or two n8k16 of B side by side.

    The fragment says which (row, k) each register holds, ldmatrix which lane's row it came from; one composed with the
    inverse of the other says which row a lane names. That its eight elements are neighbours along K is checked here.

    >>> print(fragment_rows("A", swizzled_tile(128, 64)))
    S<3,4,3> o ((16,2),8,4):((128,16),2048,32)
    >>> print(fragment_rows("B", swizzled_tile(128, 64)))
    S<3,4,3> o ((8,2,2),8,4):((128,16,1024),2048,32)
    """
    if name == "A":
        fragment = mma_a_layout(16, 8, 16, "bf16")
    else:
        one = mma_b_layout(16, 8, 16, "bf16")
        # (lane, value) -> n + 8 k becomes n + 16 k, and the second fragment's rows follow the first's.
        wide = compose(Layout((8, 16), (1, 16)), one)
        fragment = Layout((wide.shape[0], (*wide.shape[1], 2)), (wide.stride[0], (*wide.stride[1], 8)))
    placed = compose(fragment, right_inverse(ldmatrix_layout(4)))
    if compose(placed, Layout(8)) != Layout(8, 16):
        raise AssertionError(f"ldmatrix rows of {fragment} are {placed}: their elements are no neighbours along K")
    lanes = coalesce(compose(placed, Layout(32, 8)))
    rows, k = tile.layout.shape[0], tile.layout.shape[1]
    blocks, steps = _count(rows) // 16, _count(k) // 16
    # (lane, block, step) -> row + rows * k
    count = _count(rows)
    split = compose(Layout((16, 16), (1, count)), lanes)
    coordinates = Layout(
        (split.shape, blocks, steps),
        (split.stride, 16, 16 * count),
    )
    addresses: SwizzledLayout = compose(byte_offsets(tile), coordinates)
    return addresses


def _count(shape: object) -> int:
    return shape if isinstance(shape, int) else int(size(Layout(shape)))


_OFFSETS = {
    "tiles of A": "A_OFFSET",
    "tiles of B": "B_OFFSET",
    "staging of D": "STAGING_OFFSET",
    "barriers": "BARRIERS_OFFSET",
}


def _shared_step(shared_map: tuple[tuple[str, int, int], ...]) -> Step:
    used = sum(length for _, _, length in shared_map)
    return Step(
        title="Shared memory",
        notes=(
            *(f"{offset:>7} .. {offset + length:>7}  {use}" for use, offset, length in shared_map),
            f"{used + ALIGNMENT} bytes to ask for: {ALIGNMENT} more, so that offset 0 can be a multiple of it.",
        ),
        constants=tuple(Constant("uint32", _OFFSETS[use], offset) for use, offset, _ in shared_map),
    )


def _result_steps(spec: RungSpec) -> Iterator[Step]:
    if spec.multiply == "mma.sync":
        fragment, prefix, rows = mma_d_layout(16, 8, 16, "bf16"), "fragment", 16
        functions = (
            AddressFunction("fragment_row", ("lane", "value"), _part(fragment, rows, (1, 0)), "rows"),
            AddressFunction("fragment_column", ("lane", "value"), _part(fragment, rows, (0, 1)), "columns"),
        )
    else:
        fragment, prefix, rows = wgmma_d_layout(spec.tile_n), "accumulator", 64
        functions = (
            AddressFunction("accumulator_row", ("thread", "value"), accumulator_rows(fragment), "rows"),
            AddressFunction("accumulator_column", ("thread", "value"), accumulator_columns(fragment), "columns"),
        )
    yield Step(
        title="From registers to D",
        layouts=((f"{prefix}: (thread, value) -> m + {rows} n", str(fragment)),),
        functions=functions,
    )
    if spec.staged:
        panel = swizzled_tile(64, PANEL_COLUMNS)
        addresses = stmatrix_rows(panel)
        report = worst_report(addresses)
        yield Step(
            title="From registers to D, through shared memory",
            layouts=(
                ("panel of D: (m, n) -> element", str(panel)),
                ("stmatrix x4: (lane, warp, step) -> byte of a 16-byte row", str(addresses)),
            ),
            notes=(
                f"Bank conflicts: {report.wavefronts} wavefronts a store, {report.ideal} are ideal, for every warp and step.",
                f"TMA store: box {PANEL_COLUMNS} x 64, swizzle 128B.",
            ),
            constants=(
                Constant("int", "PANEL_COLUMNS", PANEL_COLUMNS),
                Constant("int", "PANELS", spec.tile_n // PANEL_COLUMNS),
                Constant("int", "PANEL_BYTES", 64 * PANEL_COLUMNS * ELEMENT_BYTES),
                Constant("int", "STAGING_BUFFERS", spec.staging_buffers),
            ),
            functions=(AddressFunction("staging_offset", ("lane", "warp", "step"), addresses, "bytes"),),
        )


def _part(fragment: Layout, rows: int, weights: tuple[int, int]) -> Layout:
    """(thread, value) -> row or column, from (thread, value) -> m + rows * n."""
    found: Layout = compose(Layout((rows, cosize(fragment) // rows), weights), fragment)
    return found
