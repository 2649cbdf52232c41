"""The Hopper GEMM's constants, each derived from a layout.

The tile of an operand is written once, as a layout of shared memory. From it follow the box and the swizzle mode of
the tensor map, the bytes a barrier expects, the matrix descriptor and its steps; from the accumulator's fragment
follow the addresses of the epilogue, and from those the proof that its stores are free of bank conflicts. The result
is a list of :class:`Step`: the generator writes them above the kernel, ``explain`` prints them.

Knows layouts and the chip's encodings; knows nothing of compilers or of arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from stridewright.layout import (
    Layout,
    Swizzle,
    SwizzledLayout,
    coalesce,
    compose,
    cosize,
    right_inverse,
    size,
    tile_to_shape,
)
from stridewright.layout.banks import Access, BankReport, bank_report
from stridewright.layout.hardware import TensorMap, decode_matrix_descriptor, swizzle_mode
from stridewright.layout.hardware.canonical import k_advance, matrix_descriptor
from stridewright.layout.hardware.fragments import stmatrix_layout, wgmma_d_layout

from .config import GemmConfig
from .hopper_rules import ALIGNMENT_SLACK, panel_rows, registers, shared_bytes, sharers

ELEMENT_BYTES = 2
PANEL_COLUMNS = 64
"""Columns of a panel of D in shared memory: 64 elements of 2 bytes are the 128 bytes of the swizzle's span."""


@dataclass(frozen=True)
class Constant:
    """A ``constexpr`` of the generated source."""

    type: str
    name: str
    value: int | str
    """A number, or the name of an enumeration's value."""
    hexadecimal: bool = False


@dataclass(frozen=True)
class AddressFunction:
    """A layout that the generated source evaluates: ``name(parameters...)`` is ``layout`` at that coordinate, in ``unit``."""

    name: str
    parameters: tuple[str, ...]
    layout: Layout | SwizzledLayout
    unit: str


@dataclass(frozen=True)
class Step:
    """One step of the derivation: what is looked at, the layouts it starts from, and what follows."""

    title: str
    layouts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    constants: tuple[Constant, ...] = ()
    functions: tuple[AddressFunction, ...] = ()


@dataclass(frozen=True)
class OperandTile:
    """An operand's tile in shared memory: ``layout`` maps (row, k) to an element offset in its slot."""

    name: str
    rows: int
    slice_rows: int
    """Rows that one CTA of a cluster loads, for itself and for the others that need the same tile."""
    layout: SwizzledLayout
    slot_bytes: int
    descriptor: int
    step_advance: Layout
    """k-step of 16 elements -> what is added to the descriptor, in its units of 16 bytes."""
    panel_bytes: int
    """Bytes from one panel of 64 elements of K to the next."""
    block_advance: int
    """Descriptor units from one block of 64 rows to the next (A only)."""
    row_bytes: int


@dataclass(frozen=True)
class TensorMaps:
    """The four tensor maps of a launch; ``d`` and ``d_tail`` are None when D leaves by plain stores."""

    a: TensorMap
    b: TensorMap
    d: TensorMap | None
    d_tail: TensorMap | None


@dataclass(frozen=True)
class Derivation:
    """Everything that follows from a valid configuration, in the order a reader would want it."""

    config: GemmConfig
    a: OperandTile
    b: OperandTile
    staging: SwizzledLayout | None
    """(row, column) of a panel of D -> element offset, or None for plain stores."""
    staging_addresses: SwizzledLayout | None
    """(lane, warp, step) -> byte offset of the 16-byte row that stmatrix writes."""
    staging_report: BankReport | None
    accumulator: Layout
    """(thread, value) -> m + 64 * n, for a block of 64 rows."""
    shared_map: tuple[tuple[str, int, int], ...]
    """(what, offset, bytes) of each part of shared memory."""
    steps: tuple[Step, ...]

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory to ask for, alignment included."""
        return sum(part[2] for part in self.shared_map) + ALIGNMENT_SLACK

    def tensor_maps(
        self,
        m: int,
        n: int,
        k: int,
        *,
        a_row_bytes: int | None = None,
        b_row_bytes: int | None = None,
        d_row_bytes: int | None = None,
    ) -> TensorMaps:
        """The tensor maps for a problem's sizes (elements) and row pitches (bytes; dense if None).

        Boxes and swizzles follow from the layouts in shared memory: A's and B's from a panel of a slot, or the slice of
        it that one CTA loads; D's from a staging panel, and the tile's last one has a map of its own when it is
        narrower. ``a`` and ``b`` are the kernel's operands: with a swapped schedule ``a`` is the problem's B.

        >>> derive(GemmConfig()).tensor_maps(512, 512, 256).a.box
        (64, 128)
        """
        config = self.config

        def tensor_map(rows: int, columns: int, row_bytes: int | None, tile: SwizzledLayout) -> TensorMap:
            pitch = columns * ELEMENT_BYTES if row_bytes is None else row_bytes
            tensor = Layout((rows, columns), (pitch // ELEMENT_BYTES, 1))
            return TensorMap.from_layouts(tensor, tile, "bf16", arch=config.arch)

        panel = panel_k(config)
        d = d_tail = None
        if config.epilogue.store == "tma":
            rows = panel_rows(config)
            tail = 0 if config.schedule.swap else config.tile.n % PANEL_COLUMNS
            full = PANEL_COLUMNS if config.schedule.swap else min(PANEL_COLUMNS, config.tile.n)
            d = tensor_map(m, n, d_row_bytes, swizzled_tile(rows, full))
            d_tail = tensor_map(m, n, d_row_bytes, swizzled_tile(rows, tail)) if tail else d
        rows_a, rows_b = (n, m) if config.schedule.swap else (m, n)
        return TensorMaps(
            a=tensor_map(rows_a, k, a_row_bytes, swizzled_tile(self.a.slice_rows, panel, panel)),
            b=tensor_map(rows_b, k, b_row_bytes, swizzled_tile(self.b.slice_rows, panel, panel)),
            d=d,
            d_tail=d_tail,
        )


def panel_k(config: GemmConfig) -> int:
    """Elements of K in a panel of a slot, one box of the copy engine: the span of the swizzle. 64 are 128 bytes, and 32,
    where a slot holds no more, 64 bytes.

    >>> panel_k(GemmConfig().replace(tile_k=128)), panel_k(GemmConfig().replace(tile_k=32))
    (64, 32)
    """
    return min(config.tile.k, 64)


def swizzle_of(span: int) -> str:
    """The swizzle whose span is ``span`` elements of 2 bytes.

    >>> swizzle_of(64), swizzle_of(32)
    ('128B', '64B')
    """
    return f"{span * ELEMENT_BYTES}B"


def swizzled_tile(rows: int, columns: int, span: int = 64) -> SwizzledLayout:
    """A K-major tile of 16-bit elements under a swizzle: (row, column) -> element offset.

    The atom is 8 rows of ``span`` elements, 64 for the 128-byte swizzle; rows beyond it follow after the atom's bytes.
    ``columns`` is a multiple of the span, or less for a row that does not fill it.

    >>> print(swizzled_tile(128, 64))
    S<3,3,3> o ((8,16),(64,1)):((64,512),(1,0))
    >>> print(swizzled_tile(64, 8))
    S<3,3,3> o (64,8):(64,1)
    >>> print(swizzled_tile(128, 32, 32))
    S<2,3,3> o ((8,16),(32,1)):((32,256),(1,0))
    """
    swizzle = Swizzle(*swizzle_mode(swizzle_of(span)).element_parameters(8 * ELEMENT_BYTES))
    atom = compose(swizzle, Layout((8, span), (span, 1)))
    tile: SwizzledLayout = tile_to_shape(atom, (rows, max(columns, span)))
    if columns >= span:
        return tile
    narrow: SwizzledLayout = compose(tile, (rows, columns))
    return narrow


def byte_offsets(layout: SwizzledLayout, element_bytes: int = ELEMENT_BYTES) -> SwizzledLayout:
    """The same map from coordinates, to byte offsets instead of element offsets.

    >>> print(byte_offsets(swizzled_tile(128, 64)))
    S<3,4,3> o ((8,16),(64,1)):((128,1024),(2,0))
    """
    bytes_of_element = Layout(cosize(layout.layout), element_bytes)
    inner = compose(bytes_of_element, layout.layout)
    swizzle = layout.swizzle
    shift = element_bytes.bit_length() - 1
    scaled = Swizzle(swizzle.bits, swizzle.base + shift, swizzle.shift)
    return SwizzledLayout(scaled, layout.offset * element_bytes, inner)


def _operand(name: str, rows: int, parts: int, config: GemmConfig) -> OperandTile:
    layout = swizzled_tile(rows, config.tile.k, panel_k(config))

    def advance(row: int, k: int) -> int:
        """Descriptor units between (0, 0) and (row, k), before the swizzle: the hardware applies that to the final address."""
        return int(layout.layout(row, k)) * ELEMENT_BYTES >> 4

    return OperandTile(
        name=name,
        rows=rows,
        slice_rows=rows // parts,
        layout=layout,
        slot_bytes=cosize(layout.layout) * ELEMENT_BYTES,
        descriptor=matrix_descriptor(layout, dtype="bf16", arch=config.arch, major="k", address=0),
        step_advance=k_advance(layout, dtype="bf16", arch=config.arch, major="k"),
        panel_bytes=cosize(layout.layout) * ELEMENT_BYTES * panel_k(config) // config.tile.k,
        block_advance=advance(64, 0) if rows > 64 else 0,
        row_bytes=int(layout.layout(1, 0)) * ELEMENT_BYTES,
    )


def accumulator_rows(accumulator: Layout) -> Layout:
    """(thread, value) -> row of the block, from (thread, value) -> m + 64 * n.

    >>> print(accumulator_rows(wgmma_d_layout(64)))
    ((4,8,4),(2,2,8)):((0,1,16),(0,8,0))
    """
    rows: Layout = compose(Layout((64, cosize(accumulator) // 64), (1, 0)), accumulator)
    return rows


def accumulator_columns(accumulator: Layout) -> Layout:
    """(thread, value) -> column of the block.

    >>> print(accumulator_columns(wgmma_d_layout(64)))
    ((4,8,4),(2,2,8)):((2,0,0),(1,0,8))
    """
    columns: Layout = compose(Layout((64, cosize(accumulator) // 64), (0, 1)), accumulator)
    return columns


def stmatrix_rows(panel: SwizzledLayout, columns: int = PANEL_COLUMNS, swapped: bool = False) -> SwizzledLayout:
    """(lane, warp, step) -> byte offset in the panel of the 16-byte row whose address that lane gives to stmatrix x4.

    Step s stores accumulator values 8 s .. 8 s + 7, 16 of the fragment's ``columns``. The fragment says which (m, n)
    each value is; stmatrix says which row and column each register half goes to; one composed with the inverse of the
    other says where a row lies. ``panel`` maps (m, n) to elements; with ``swapped`` operands it maps (n, m), and
    stmatrix transposes. That the row's eight elements are neighbours is checked here: otherwise stmatrix could not
    store this fragment.

    >>> print(stmatrix_rows(swizzled_tile(64, 64)))
    S<3,4,3> o ((16,2),4,4):((128,16),2048,32)
    """
    step_count = -(-columns // 16)
    fragment = wgmma_d_layout(16 * step_count)
    lanes, warps = fragment[0][0:2], fragment[0][2]
    values, steps = compose(fragment[1], Layout(8)), compose(fragment[1], Layout(step_count, 8))
    one_step = Layout((lanes.shape, values.shape), (lanes.stride, values.stride))
    placed = compose(one_step, right_inverse(stmatrix_layout(4, trans=swapped)))
    neighbours = Layout(8, 1 if swapped else 64)
    if compose(placed, Layout(8)) != neighbours:
        raise AssertionError(f"stmatrix rows of {one_step} are {placed}, not {neighbours}")
    rows = coalesce(compose(placed, Layout(32, 8)))
    coordinates = Layout((rows.shape, warps.shape, steps.shape), (rows.stride, warps.stride, steps.stride))
    bytes_of_panel = byte_offsets(panel)
    if swapped:
        turned = Layout(bytes_of_panel.layout.shape[::-1], bytes_of_panel.layout.stride[::-1])
        bytes_of_panel = SwizzledLayout(bytes_of_panel.swizzle, bytes_of_panel.offset, turned)
    addresses: SwizzledLayout = compose(bytes_of_panel, coordinates)
    return addresses


@lru_cache(maxsize=64)
def derive(config: GemmConfig) -> Derivation:
    """Everything that follows from ``config``. Raises :class:`ConfigError` if it is not valid.

    >>> hex(derive(GemmConfig()).a.descriptor)
    '0x4000004000010000'
    """
    config.require_valid()
    a, b = (
        _operand("A", config.tile.m, config.cluster.n, config),
        _operand("B", config.tile.n, config.cluster.m, config),
    )
    accumulator = wgmma_d_layout(config.tile.n)
    staging = addresses = report = None
    if config.epilogue.store == "tma":
        swapped, rows = config.schedule.swap, panel_rows(config)
        # A step covers 16 rows of a swapped panel: of the last one, half may stay unused.
        staging = swizzled_tile(-(-rows // 16) * 16 if swapped else rows, PANEL_COLUMNS)
        addresses = stmatrix_rows(staging, config.tile.n if swapped else PANEL_COLUMNS, swapped)
        # One warp, one step; the others add multiples of 16 bytes * 8 rows or permute chunks, and are reported in
        # explain().
        report = worst_report(addresses)
    offset, shared_map = 0, []
    for use, length in shared_bytes(config).items():
        shared_map.append((use, offset, length))
        offset += length
    derivation = Derivation(
        config=config,
        a=a,
        b=b,
        staging=staging,
        staging_addresses=addresses,
        staging_report=report,
        accumulator=accumulator,
        shared_map=tuple(shared_map),
        steps=(),
    )
    return dataclasses.replace(derivation, steps=tuple(_steps(derivation)))


@lru_cache(maxsize=64)
def worst_report(addresses: SwizzledLayout) -> BankReport:
    """The most conflicted of all stmatrix stores of a panel: every warp, every step.

    >>> worst_report(stmatrix_rows(swizzled_tile(64, 64))).ratio
    1.0
    """
    warps, steps = (size(addresses.layout[mode]) for mode in (1, 2))
    reports = [
        bank_report(addresses, Access(bytes=16, op="stmatrix", lanes=tuple((lane, warp, step) for lane in range(32))))
        for warp in range(warps)
        for step in range(steps)
    ]
    return max(reports, key=lambda report: report.ratio)


_ORDER_NAMES = {
    "row": "ORDER_ROW",
    "column": "ORDER_COLUMN",
    "grouped": "ORDER_GROUPED",
    "serpentine": "ORDER_SERPENTINE",
    "hilbert": "ORDER_TABLE",
}


def _steps(derivation: Derivation) -> Iterator[Step]:
    config, a, b = derivation.config, derivation.a, derivation.b
    tile, consumers = config.tile, config.schedule.consumers
    producer_registers, consumer_registers = registers(config)
    yield Step(
        title="The tile, and who computes it",
        notes=(
            f"A CTA computes {tile.m} x {tile.n} of D at a time; its K runs through slots of {tile.k} elements.",
            f"{consumers} consumer warpgroup{'s' * (consumers > 1)} of {tile.m // sharers(config)} rows each, wgmma m64n{tile.n}k16: "
            f"{tile.m * tile.n // (sharers(config) * 128)} accumulator registers a thread.",
            f"setmaxnreg takes registers from the producer's threads ({producer_registers}) and gives them to the consumers' ({consumer_registers}).",
        ),
        constants=(
            Constant("int", "TILE_M", tile.m),
            Constant("int", "TILE_N", tile.n),
            Constant("int", "TILE_K", tile.k),
            Constant("int", "PANEL_K", panel_k(config)),
            Constant("bool", "SWAPPED", int(config.schedule.swap)),
            Constant("int", "STAGES", config.pipeline.stages),
            Constant("int", "CONSUMERS", consumers),
            Constant("bool", "PINGPONG", int(config.schedule.kind == "pingpong")),
            Constant("int", "SLOT_READERS", sharers(config)),
            Constant("int", "M_BLOCKS", tile.m // sharers(config) // 64),
            Constant("int", "CLUSTER_M", config.cluster.m),
            Constant("int", "CLUSTER_N", config.cluster.n),
            Constant("int", "THREADS", config.threads),
            Constant("Order", "ORDER", _ORDER_NAMES[config.schedule.order]),
            Constant("int", "GROUP_M", config.schedule.group_m),
            Constant("Hint", "HINT_A", f"HINT_{config.pipeline.hint_a.upper()}"),
            Constant("Hint", "HINT_B", f"HINT_{config.pipeline.hint_b.upper()}"),
            Constant("bool", "SPLIT", int(config.split.kind != "none")),
            Constant("bool", "ATOMIC", int(config.split.reduce == "atomic")),
            *(Constant("uint32", f"FIXED_{name.upper()}", _baked(config, name)) for name in "mnk"),
            Constant("int", "TURN_BARRIERS", 1 + consumers),
            Constant("int", "PARTIAL_SUMS_BARRIER", 3 + consumers),
            Constant("int", "PRODUCER_REGISTERS", producer_registers),
            Constant("int", "CONSUMER_REGISTERS", consumer_registers),
        ),
    )
    for operand in (a, b):
        yield _operand_step(operand, config)
    offsets = {use: offset for use, offset, _ in derivation.shared_map}
    yield Step(
        title="Shared memory",
        notes=(
            *(f"{offset:>7} .. {offset + length:>7}  {use}" for use, offset, length in derivation.shared_map if length),
            f"{derivation.shared_bytes} bytes to ask for: {ALIGNMENT_SLACK} more, so that offset 0 can be a multiple of "
            f"{ALIGNMENT_SLACK}.",
        ),
        constants=(
            Constant("uint32", "A_OFFSET", offsets["tiles of A"]),
            Constant("uint32", "B_OFFSET", offsets["tiles of B"]),
            Constant("uint32", "STAGING_OFFSET", offsets["staging of D"]),
            Constant("uint32", "FULL_BARRIERS_OFFSET", offsets["barriers"]),
            Constant("uint32", "EMPTY_BARRIERS_OFFSET", offsets["barriers"] + 8 * config.pipeline.stages),
        ),
    )
    if config.epilogue.store == "tma":
        yield _staging_step(derivation)
    if config.epilogue.store == "direct" or config.split.kind != "none":
        yield _direct_step(derivation)


def _baked(config: GemmConfig, name: str) -> int:
    """The size baked into the source, in the kernel's own terms (operands swapped: its m is the problem's n), or 0."""
    if config.schedule.swap:
        name = {"m": "n", "n": "m"}.get(name, name)
    value = getattr(config.problem, name) if name in config.specialize else None
    return 0 if value is None else int(value)


def _operand_step(operand: OperandTile, config: GemmConfig) -> Step:
    name, panel = operand.name, panel_k(config)
    constants = [
        Constant("uint32", f"{name}_SLOT_BYTES", operand.slot_bytes),
        Constant("uint64", f"{name}_DESCRIPTOR", operand.descriptor, hexadecimal=True),
        Constant("uint32", f"{name}_PANEL_BYTES", operand.panel_bytes),
        Constant("uint32", f"{name}_ROW_BYTES", operand.row_bytes),
        Constant("uint32", f"{name}_SLICE_ROWS", operand.slice_rows),
    ]
    if name == "A":
        constants.append(Constant("uint32", "A_BLOCK_ADVANCE", operand.block_advance))
    return Step(
        title=f"A slot of {name}",
        layouts=(
            (f"({'m' if name == 'A' else 'n'}, k) -> element of the slot", str(operand.layout)),
            ("the same in bytes", str(byte_offsets(operand.layout))),
        ),
        notes=(
            f"TMA: {config.tile.k // panel} x box {panel} x {operand.slice_rows} elements, swizzle {swizzle_of(panel)}; the barrier expects {operand.slot_bytes} bytes, also where the box leaves the tensor.",
            f"Matrix descriptor at address 0: {operand.descriptor:#018x}, K-major.",
            *(f"  {line}" for line in decode_matrix_descriptor(operand.descriptor, "sm_90a").explain().splitlines()),
            "Each k-step of 16 elements adds to the descriptor, in its units of 16 bytes:",
            f"  step -> {operand.step_advance}",
        ),
        constants=tuple(constants),
        functions=(
            AddressFunction(f"{name.lower()}_step_advance", ("step",), operand.step_advance, "units of 16 bytes"),
        ),
    )


def _staging_step(derivation: Derivation) -> Step:
    config = derivation.config
    staging, addresses, report = derivation.staging, derivation.staging_addresses, derivation.staging_report
    if staging is None or addresses is None or report is None:
        raise AssertionError("a staged epilogue has a staging layout")
    swapped = config.schedule.swap
    tail = 0 if swapped else config.tile.n % PANEL_COLUMNS
    box = (PANEL_COLUMNS, config.tile.n) if swapped else (min(PANEL_COLUMNS, config.tile.n), 64)
    return Step(
        title="From accumulators to D, through shared memory",
        layouts=(
            ("accumulator: (thread, value) -> m + 64 n", str(derivation.accumulator)),
            (f"panel of D: ({'n, m' if swapped else 'm, n'}) -> element", str(staging)),
            ("stmatrix x4: (lane, warp, step) -> byte of a 16-byte row", str(addresses)),
        ),
        notes=(
            f"Bank conflicts: {report.wavefronts} wavefronts a store, {report.ideal} are ideal, for every warp and step"
            + (": none." if report.ratio == 1 else f": ratio {report.ratio:g}."),
            f"TMA store: box {box[0]} x {box[1]}, swizzle {swizzle_of(PANEL_COLUMNS)}"
            + (f"; the tile's last panel is {tail} columns wide and has a map of its own." if tail else "."),
        ),
        constants=(
            Constant("int", "PANEL_COLUMNS", PANEL_COLUMNS),
            Constant("int", "PANELS", -(-config.tile.n // PANEL_COLUMNS)),
            Constant("int", "TAIL_COLUMNS", tail),
            Constant("int", "PANEL_BYTES", panel_rows(config) * 2 * PANEL_COLUMNS),
            Constant("int", "STAGING_BUFFERS", config.epilogue.buffers),
        ),
        functions=(AddressFunction("staging_offset", ("lane", "warp", "step"), addresses, "bytes"),),
    )


def _direct_step(derivation: Derivation) -> Step:
    accumulator = derivation.accumulator
    return Step(
        title="From accumulators to D, by plain stores"
        if derivation.config.epilogue.store == "direct"
        else "From partial sums to D, by plain stores",
        layouts=(("accumulator: (thread, value) -> m + 64 n", str(accumulator)),),
        functions=(
            AddressFunction("accumulator_row", ("thread", "value"), accumulator_rows(accumulator), "rows"),
            AddressFunction("accumulator_column", ("thread", "value"), accumulator_columns(accumulator), "columns"),
        ),
    )
