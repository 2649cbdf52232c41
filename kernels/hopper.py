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
    SwizzledLayout,
    coalesce,
    compose,
    cosize,
    right_inverse,
    size,
)
from stridewright.layout.banks import Access, BankReport, bank_report
from stridewright.layout.hardware import TensorMap, decode_matrix_descriptor
from stridewright.layout.hardware.fragments import stmatrix_layout, wgmma_d_layout

from .config import GemmConfig
from .hopper_operands import (
    ELEMENT_BYTES,
    PANEL_COLUMNS,
    OperandTile,
    byte_offsets,
    operand_tile,
    panel_k,
    swizzle_of,
    swizzled_tile,
)
from .hopper_rules import (
    ALIGNMENT_SLACK,
    MN_BOX,
    NUMBER,
    REGISTER_FILE,
    WARPGROUP,
    element_bytes,
    panel_rows,
    registers,
    shared_bytes,
    sharers,
    uses_terms,
)

__all__ = [
    "ELEMENT_BYTES",
    "PANEL_COLUMNS",
    "AddressFunction",
    "Constant",
    "Derivation",
    "OperandTile",
    "Step",
    "TensorMaps",
    "accumulator_columns",
    "accumulator_rows",
    "byte_offsets",
    "derive",
    "panel_k",
    "stmatrix_rows",
    "swizzle_of",
    "swizzled_tile",
    "worst_report",
]


@dataclass(frozen=True)
class Constant:
    """A ``constexpr`` of the generated source."""

    type: str
    name: str
    value: int | str
    """A number, or the name of an enumeration's value."""
    hexadecimal: bool = False
    note: str = ""
    """What it is, in a line."""


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
    in_head: bool = False
    """Whether the notes stand at the head of a source, and need not stand above the constants too."""


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
        batches: int = 1,
        a_batch_bytes: int | None = None,
        b_batch_bytes: int | None = None,
        d_batch_bytes: int | None = None,
    ) -> TensorMaps:
        """The tensor maps for a problem's sizes (elements), its pitches from row to row (MN-major, from one k to the next) and
        from matrix to matrix of a batch (bytes; if None dense, the
        operands' padded to whole 16).

        Boxes and swizzles follow from the layouts in shared memory: A's and B's from a panel of a slot, or the slice of
        it that one CTA loads; D's from a staging panel, and the tile's last one has a map of its own when it is
        narrower. ``a`` and ``b`` are the kernel's operands: with a swapped schedule ``a`` is the problem's B.

        >>> derive(GemmConfig()).tensor_maps(512, 512, 256).a.box
        (64, 128)
        """
        config = self.config
        form = config.problem.form

        def several(tensor_map: TensorMap, wanted: bool, batch_bytes: int | None) -> TensorMap:
            """The map of one matrix with a dimension more: from matrix to matrix."""
            if not wanted:
                return tensor_map
            pitch = tensor_map.strides_bytes[0] * tensor_map.shape[1] if batch_bytes is None else batch_bytes
            return dataclasses.replace(
                tensor_map,
                shape=(*tensor_map.shape, max(batches, 1)),
                strides_bytes=(*tensor_map.strides_bytes, pitch),
                box=(*tensor_map.box, 1),
            )

        def operand_map(operand: OperandTile, rows: int, row_bytes: int | None) -> TensorMap:
            element = element_bytes(operand.dtype)
            run = rows if operand.major == "mn" else k
            pitch = -(-max(run, 1) * element // 16) * 16 // element if row_bytes is None else row_bytes // element
            tensor = Layout((max(rows, 1), max(k, 1)), (1, pitch) if operand.major == "mn" else (pitch, 1))
            return TensorMap.from_layouts(tensor, operand.box, operand.dtype, arch=config.arch)

        def result_map(tile: SwizzledLayout) -> TensorMap:
            pitch = n if d_row_bytes is None else d_row_bytes // ELEMENT_BYTES
            made = TensorMap.from_layouts(Layout((m, n), (pitch, 1)), tile, config.problem.d, arch=config.arch)
            return several(made, form in ("batch", "groups_k"), d_batch_bytes)

        d = d_tail = None
        if config.epilogue.store == "tma":
            rows = panel_rows(config)
            tail = 0 if config.schedule.swap else config.tile.n % PANEL_COLUMNS
            full = PANEL_COLUMNS if config.schedule.swap else min(PANEL_COLUMNS, config.tile.n)
            d = result_map(swizzled_tile(rows, full))
            d_tail = result_map(swizzled_tile(rows, tail)) if tail else d
        rows_a, rows_b = (n, m) if config.schedule.swap else (m, n)
        return TensorMaps(
            a=several(operand_map(self.a, rows_a, a_row_bytes), form == "batch", a_batch_bytes),
            b=several(operand_map(self.b, rows_b, b_row_bytes), form in ("batch", "groups_m"), b_batch_bytes),
            d=d,
            d_tail=d_tail,
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
    a, b = operand_tile("A", config), operand_tile("B", config)
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
    "nested": "ORDER_TABLE",
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
            f"{_shared_rows(config)}, wgmma m64n{tile.n}k{32 // element_bytes(a.dtype)}: "
            f"{tile.m * tile.n // (sharers(config) * 128)} accumulator registers a thread.",
            f"setmaxnreg takes registers from the producer and gives them to the consumers: {producer_registers} + {consumers} * {consumer_registers} = "
            f"{producer_registers + consumers * consumer_registers} for one thread of each warpgroup,",
            f"and {WARPGROUP} such threads take {WARPGROUP * (producer_registers + consumers * consumer_registers)} of the SM's {REGISTER_FILE}.",
        ),
        constants=(
            Constant("int", "TILE_M", tile.m, note="rows of D that a CTA computes at a time"),
            Constant("int", "TILE_N", tile.n, note="columns of D"),
            Constant("int", "TILE_K", tile.k, note="elements of K in a slot of the ring"),
            Constant("int", "BOX_K", panel_k(config), note="elements of K that the copy engine brings in one box"),
            Constant("int", "K_STEPS", size(a.step_advance), note="multiplies along K in a slot"),
            Constant(
                "bool",
                "SWAPPED",
                config.schedule.swap,
                note="the problem's B is the kernel's A: D comes out transposed",
            ),
            Constant("int", "STAGES", config.pipeline.stages, note="slots of the ring"),
            Constant("int", "CONSUMERS", consumers, note="warpgroups that multiply"),
            Constant(
                "bool", "PINGPONG", config.schedule.kind == "pingpong", note="consumers take turns at whole tiles"
            ),
            Constant("int", "SLOT_READERS", sharers(config), note="consumers that read a slot"),
            Constant(
                "int",
                "STRIPS",
                tile.m // sharers(config) // 64,
                note="strips of 64 rows, a wgmma each, that a consumer has of a tile",
            ),
            Constant("int", "CLUSTER_M", config.cluster.m, note="CTAs of a cluster above one another"),
            Constant("int", "CLUSTER_N", config.cluster.n, note="CTAs of a cluster beside one another"),
            Constant("int", "THREADS", config.threads, note="of a CTA: the producer's warpgroup and the consumers'"),
            Constant("int", "CONSUMER_THREADS", WARPGROUP * consumers, note="of all consumers"),
            Constant("int", "WARPGROUP_THREADS", WARPGROUP),
            Constant("Order", "ORDER", _ORDER_NAMES[config.schedule.order], note="in which the tiles are taken"),
            Constant("int", "GROUP_M", config.schedule.group_m, note="rows of blocks in a band of the order"),
            Constant(
                "bool",
                "PLACED",
                config.schedule.launch == "placed",
                note="clusters are numbered by the GPC they run on",
            ),
            Constant("Hint", "HINT_A", f"HINT_{config.pipeline.hint_a.upper()}", note="what L2 is told about A"),
            Constant("Hint", "HINT_B", f"HINT_{config.pipeline.hint_b.upper()}", note="what L2 is told about B"),
            Constant("bool", "SPLIT", config.split.kind != "none", note="tiles may be shared, K divided among CTAs"),
            Constant(
                "bool", "ATOMIC", config.split.reduce == "atomic", note="partial sums are added in memory, in any order"
            ),
            *(
                Constant("uint32", f"FIXED_{name.upper()}", _baked(config, name), note=f"{name.upper()} baked in, or 0")
                for name in "mnk"
            ),
            *_formats(config),
            Constant(
                "int",
                "STAGING_BARRIERS",
                1,
                note="first of the consumers' named barriers, one each; 0 is the whole CTA's",
            ),
            Constant(
                "int", "TURN_BARRIERS", 1 + consumers, note="first of two named barriers for the consumers' turns"
            ),
            Constant("int", "PARTIAL_SUMS_BARRIER", 3 + consumers, note="named barrier of all consumers"),
            Constant("int", "PRODUCER_REGISTERS", producer_registers, note="that a producer thread keeps"),
            Constant("int", "CONSUMER_REGISTERS", consumer_registers, note="that a consumer thread gets"),
        ),
    )
    for operand in (a, b):
        yield _operand_step(operand, config)
    offsets = {use: offset for use, offset, _ in derivation.shared_map}
    yield Step(
        title="Shared memory",
        in_head=True,
        notes=(
            *(f"{offset:>7} .. {offset + length:>7}  {use}" for use, offset, length in derivation.shared_map if length),
            f"{derivation.shared_bytes} bytes to ask for: {ALIGNMENT_SLACK} more, so that offset 0 can be a multiple of "
            f"{ALIGNMENT_SLACK}.",
        ),
        constants=(
            Constant("uint32", "A_OFFSET", offsets["tiles of A"], note="slot 0 of A"),
            Constant("uint32", "B_OFFSET", offsets["tiles of B"], note="slot 0 of B"),
            Constant("uint32", "STAGING_OFFSET", offsets["staging of D"], note="the consumers' panels of D"),
            Constant("uint32", "FULL_BARRIERS_OFFSET", offsets["barriers"], note="a slot's barrier: filled"),
            Constant(
                "uint32", "EMPTY_BARRIERS_OFFSET", offsets["barriers"] + 8 * config.pipeline.stages, note="free again"
            ),
            Constant("uint32", "NUMBER_OFFSET", offsets[NUMBER], note="the cluster's number in the grid"),
        ),
    )
    if config.epilogue.store == "tma":
        yield _staging_step(derivation)
    if config.epilogue.store == "direct" or config.split.kind != "none" or uses_terms(config):
        yield _direct_step(derivation)


def _shared_rows(config: GemmConfig) -> str:
    """Which rows of a tile a consumer has, in words."""
    consumers = config.schedule.consumers
    if config.schedule.kind == "pingpong":
        return f"{consumers} consumer warpgroups take turns at whole tiles"
    rows = config.tile.m // consumers
    return f"{consumers} consumer warpgroup{'s' * (consumers > 1)} of {rows} rows{' each' * (consumers > 1)}"


def _baked(config: GemmConfig, name: str) -> int:
    """The size baked into the source, in the kernel's own terms (operands swapped: its m is the problem's n), or 0."""
    if config.schedule.swap:
        name = {"m": "n", "n": "m"}.get(name, name)
    value = getattr(config.problem, name) if name in config.specialize else None
    return 0 if value is None else int(value)


_FORMATS = {name: f"FORMAT_{name.upper()}" for name in ("bf16", "f16", "f32", "e4m3", "e5m2", "s8", "s32")}


def _formats(config: GemmConfig) -> Iterator[Constant]:
    """What the elements are, and what is done to the sums."""
    problem, fusion = config.problem, config.fusion
    terms = uses_terms(config)
    yield Constant("Format", "D_FORMAT", _FORMATS[problem.d], note="of the result")
    yield Constant("bool", "INTEGER", problem.a == "s8", note="sums are int32, not float32")
    yield Constant("Form", "FORM", f"FORM_{problem.form.upper()}", note="one product, a batch, or groups")
    yield Constant("bool", "TERMS", terms, note="the launch takes more than A and B")
    yield Constant(
        "Bias", "BIAS", f"BIAS_{fusion.bias.upper() or 'NONE'}", note="a bias along this dimension of D is added"
    )
    if not terms:
        return
    yield Constant("bool", "ALPHA", fusion.alpha, note="sums are multiplied by alpha")
    yield Constant("bool", "HAS_C", bool(fusion.c), note="beta * C is added")
    yield Constant("Format", "C_FORMAT", _FORMATS[fusion.c or "f32"], note="of C")
    yield Constant("Format", "BIAS_FORMAT", _FORMATS[fusion.bias_format], note="of the bias")
    for name, value, note in (
        ("GATED", fusion.gated, "of two neighbouring columns one is made: act(x[2 j]) * x[2 j + 1]"),
        ("AUX", fusion.aux, "what the activation is applied to is stored too"),
        ("AMAX", fusion.amax, "the largest |D| is reported"),
        ("SCALE_D", fusion.scale_d, "the result is multiplied by a factor before it is converted"),
        ("CHANGED", fusion.changes_sums, "something is done to the sums before they are converted"),
    ):
        yield Constant("bool", name, value, note=note)
    for name, kind in (("SCALES_A", fusion.scale_a), ("SCALES_B", fusion.scale_b)):
        yield Constant("Scales", name, f"SCALES_{kind.upper() or 'NONE'}", note=f"factors of {name[-1]}'s rows")
    yield Constant(
        "int",
        "PROMOTE_SLOTS",
        config.pipeline.promote // config.tile.k,
        note="slots between additions to the float32 sums",
    )


def _box(operand: OperandTile, config: GemmConfig) -> str:
    """A box of the copy engine in words: elements, innermost first."""
    if operand.major == "mn":
        return f"{MN_BOX} x {config.tile.k} elements, swizzle 128B"
    panel = panel_k(config)
    return f"{panel} x {operand.slice_rows} elements, swizzle {swizzle_of(panel, element_bytes(operand.dtype))}"


def _operand_step(operand: OperandTile, config: GemmConfig) -> Step:
    name, box = operand.name, _box(operand, config)
    constants = [
        Constant("uint32", f"{name}_SLOT_BYTES", operand.slot_bytes, note="from slot to slot"),
        Constant("uint64", f"{name}_DESCRIPTOR", operand.descriptor, hexadecimal=True, note="all but the address"),
        Constant("uint32", f"{name}_BOX_BYTES", operand.panel_bytes, note="from box to box of a slot"),
        Constant("int", f"{name}_BOXES", operand.boxes, note="boxes that this CTA loads into a slot"),
        Constant("bool", f"{name}_MN", operand.major == "mn", note="rows are innermost in memory, not K"),
        Constant("uint32", f"{name}_ROW_BYTES", operand.row_bytes, note="from row to row of a box"),
        Constant("uint32", f"{name}_SLICE_ROWS", operand.slice_rows, note="rows that one CTA of a cluster loads"),
    ]
    if name == "B":
        most = max(operand_tile("A", config).boxes, operand.boxes)
        constants.append(Constant("int", "MOST_BOXES", most, note="of A's and B's, which one loop loads"))
    if name == "A":
        constants.append(
            Constant("uint32", "A_STRIP_ADVANCE", operand.block_advance, note="descriptor units from strip to strip")
        )
    return Step(
        title=f"A slot of {name}",
        layouts=(
            (f"({'m' if name == 'A' else 'n'}, k) -> element of the slot", str(operand.layout)),
            ("the same in bytes", str(byte_offsets(operand.layout, element_bytes(operand.dtype)))),
        ),
        notes=(
            f"TMA: {operand.boxes} x box {box}; the barrier expects {operand.slot_bytes} bytes, also where the box leaves the tensor.",
            f"Matrix descriptor at address 0: {operand.descriptor:#018x}, {operand.major.upper()}-major.",
            *(f"  {line}" for line in decode_matrix_descriptor(operand.descriptor, "sm_90a").explain().splitlines()),
            *operand.step_words,
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
            *(
                [
                    "Its rows, too, lie 128 bytes apart in shared memory: as far as the swizzle spans, whatever the box's width."
                ]
                if tail
                else []
            ),
        ),
        constants=(
            Constant(
                "int", "PANEL_COLUMNS", PANEL_COLUMNS, note="columns of D that are staged and stored at once: a panel"
            ),
            Constant("int", "PANELS", -(-config.tile.n // PANEL_COLUMNS), note="of a strip of a tile"),
            Constant(
                "int", "TAIL_COLUMNS", tail, note="columns of the last panel, or 0 if it is as wide as the others"
            ),
            Constant("int", "PANEL_BYTES", panel_rows(config) * 2 * PANEL_COLUMNS, note="in shared memory"),
            Constant("int", "STAGING_BUFFERS", config.epilogue.buffers, note="panels of a consumer, used in turn"),
        ),
        functions=(
            AddressFunction("staging_offset", ("lane", "warp", "step"), addresses, "bytes"),
            *(() if swapped else (AddressFunction("staging_chunk", ("row", "chunk"), _chunks(staging), "bytes"),)),
        ),
    )


def _chunks(staging: SwizzledLayout) -> SwizzledLayout:
    """(row, 16-byte chunk of it) of a panel -> byte offset."""
    in_bytes = byte_offsets(staging)
    rows = size(in_bytes.layout[0])
    chunks: SwizzledLayout = compose(in_bytes, Layout((rows, PANEL_COLUMNS // 8), (1, rows * 8)))
    return chunks


def _direct_step(derivation: Derivation) -> Step:
    accumulator, config = derivation.accumulator, derivation.config
    title = "From partial sums to D, by plain stores" if config.split.kind != "none" else "Where each sum belongs in D"
    if config.epilogue.store == "direct":
        title = "From accumulators to D, by plain stores"
    return Step(
        title=title,
        layouts=(("accumulator: (thread, value) -> m + 64 n", str(accumulator)),),
        functions=(
            AddressFunction("accumulator_row", ("thread", "value"), accumulator_rows(accumulator), "rows"),
            AddressFunction("accumulator_column", ("thread", "value"), accumulator_columns(accumulator), "columns"),
        ),
    )
