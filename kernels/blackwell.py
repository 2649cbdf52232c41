"""The Blackwell GEMM's constants, each derived from a layout.

The tile of an operand is written once, as a layout of shared memory. From it follow the boxes and the swizzle mode of
the tensor map, the bytes a barrier expects, the matrix descriptor and its steps. From the accumulator's layout in tensor
memory and that of tcgen05.ld follows which element of D each register of the epilogue holds, and from that the addresses
of its stores and the proof that they are free of bank conflicts. The result is a list of steps: the generator writes
them above the kernel, ``explain`` prints them.

Knows layouts and the chip's encodings; knows nothing of compilers or of arrays. Nothing here was run on a Blackwell: the
layouts and descriptors are held against CuTe's headers, the kernels are assembled and emulated.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache

from stridewright.layout import Layout, SwizzledLayout, compose, left_inverse, size
from stridewright.layout.banks import Access, BankReport, bank_report
from stridewright.layout.hardware import (
    Plan,
    Region,
    Request,
    TensorMap,
    accumulator_layout,
    accumulator_request,
    instruction_descriptor,
    smem_tile,
    tensor_memory_access,
)
from stridewright.layout.hardware.dtypes import data_type
from stridewright.layout.hardware.tensor_memory_plan import MINIMUM_COLUMNS

from .blackwell_left import TensorA, slot_requests, tensor_a
from .blackwell_operands import OperandTile, operand_tile
from .blackwell_rules import (
    ALIGNMENT_SLACK,
    accumulator_width,
    ctas,
    panel_rows,
    path_of,
    shared_parts,
    uses_terms,
)
from .blackwell_scales import TileScales, scale_map, scale_tensors, scaled_types, tile_scales
from .blackwell_types import (
    accumulator_of,
    instruction_k,
    kind_of,
    multiplied,
    panel_columns,
    result_bytes,
)
from .config import GemmConfig
from .hopper import Step, TensorMaps, byte_offsets

EPILOGUE_WARPS = 4
LANE = 1 << 16
"""One lane, in an address of tensor memory (PTX ISA 9.1, section 9.7.16.2)."""
WARP_LANES = 32
"""Lanes that one warp may touch: those from 32 * (warp % 4) on (PTX ISA 9.1, section 9.7.16.8)."""


@dataclass(frozen=True)
class Fragment:
    """What the epilogue's tcgen05.ld bring: ``pieces`` loads of ``shape``, each of ``values`` registers a thread and
    ``columns`` columns of tensor memory.

    ``row``: (lane, warp) -> row of the CTA's part of the tile; ``column``: (lane, warp, value, piece) -> column.
    """

    shape: str
    values: int
    columns: int
    pieces: int
    place: Layout
    """(lane, warp, value, piece) -> lane << 16 | column of tensor memory, from the accumulator's address."""
    element: Layout
    """(lane, warp, value, piece) -> row + rows * column of the CTA's part of the tile."""
    row: Layout
    column: Layout


@dataclass(frozen=True)
class Derivation:
    """Everything that follows from a valid configuration, in the order a reader would want it."""

    config: GemmConfig
    ctas: int
    threads: int
    a: OperandTile
    b: OperandTile
    instruction_descriptor: int
    plan: Plan
    accumulator: Layout
    """(row of this CTA, column) -> lane << 16 | column of tensor memory."""
    accumulator_offsets: Layout
    """Number of the accumulator -> its first column."""
    fragment: Fragment
    staging: SwizzledLayout | None
    """(row, column) of a warp's panel of D -> element offset, or None for plain stores."""
    staging_addresses: SwizzledLayout | None
    """(lane, chunk of 8 values, piece of the panel) -> byte offset of the 16 bytes that the lane writes."""
    staging_report: BankReport | None
    shared_map: tuple[tuple[str, int, int], ...]
    """(what, offset, bytes) of each part of shared memory."""
    scales: TileScales | None
    """The scale factors of a tile, where the formats have some."""
    left: TensorA | None
    """A in tensor memory, None where the multiply reads it in shared memory."""
    steps: tuple[Step, ...]

    @property
    def kind(self) -> str:
        """The kind of tcgen05.mma.

        >>> derive(GemmConfig(arch="sm_100a")).kind
        'f16'
        """
        return kind_of(self.config.problem)

    @property
    def k_steps(self) -> int:
        """Instructions for a slot of K.

        >>> derive(GemmConfig(arch="sm_100a")).k_steps
        4
        """
        return self.config.tile.k // instruction_k(self.config.problem)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory to ask for, alignment included."""
        return sum(part[2] for part in self.shared_map) + ALIGNMENT_SLACK

    def offset(self, use: str) -> int:
        """Where a part of shared memory begins, in bytes. KeyError for one that there is not.

        >>> derive(GemmConfig(arch="sm_100a")).offset("tiles of B")
        65536
        """
        return {name: offset for name, offset, _ in self.shared_map}[use]

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
        """The tensor maps for a problem's sizes (elements) and pitches (bytes; dense if None), of a batch also those from matrix
        to matrix: 0 of an operand that all share.

        The pitch of a K-major operand is that of its rows of K, of an MN-major one that of its rows of M or N. Boxes and
        swizzles follow from the layouts in shared memory. The last panel of D in a tile has a map of its own when it is
        narrower.

        >>> maps = derive(GemmConfig(arch="sm_100a")).tensor_maps(512, 512, 256)
        >>> maps.a.box, maps.b.box, maps.d.box
        ((64, 128), (64, 256), (64, 32))
        """
        config = self.config
        problem = config.problem

        def operand_map(tile: OperandTile, rows: int, row_bytes: int | None) -> TensorMap:
            run, bits = k if tile.major == "k" else rows, data_type(tile.dtype).bits
            pitch = run if row_bytes is None else row_bytes * 8 // bits
            tensor = Layout((rows, k), (pitch, 1) if tile.major == "k" else (1, pitch))
            return TensorMap.from_layouts(tensor, tile.box, tile.dtype, arch=config.arch)

        def several(tensor_map: TensorMap, batch_bytes: int | None) -> TensorMap:
            """The map of one matrix with a dimension more, from matrix to matrix."""
            if problem.form != "batch":
                return tensor_map
            between = tensor_map.strides_bytes[0] * tensor_map.shape[1] if batch_bytes is None else batch_bytes
            return dataclasses.replace(
                tensor_map,
                shape=(*tensor_map.shape, max(batches, 1)),
                strides_bytes=(*tensor_map.strides_bytes, between),
                box=(*tensor_map.box, 1),
            )

        d = d_tail = None
        if config.epilogue.store == "tma":
            pitch = n if d_row_bytes is None else d_row_bytes // result_bytes(problem)
            tensor = Layout((m, n), (pitch, 1))
            rows, columns, panel = (
                panel_rows(config),
                self.fragment.columns * self.fragment.pieces,
                panel_columns(problem),
            )
            full, tail = min(panel, columns), columns % panel
            d = TensorMap.from_layouts(tensor, panel_tile(rows, full, problem.d), problem.d, arch=config.arch)
            d = several(d, d_batch_bytes)
            narrow = panel_tile(rows, tail, problem.d) if tail and tail != full else None
            d_tail = d
            if narrow is not None:
                d_tail = several(TensorMap.from_layouts(tensor, narrow, problem.d, arch=config.arch), d_batch_bytes)
        return TensorMaps(
            a=several(operand_map(self.a, m, a_row_bytes), a_batch_bytes),
            b=several(operand_map(self.b, n, b_row_bytes), b_batch_bytes),
            d=d,
            d_tail=d_tail,
        )

    def scale_maps(self, m: int, n: int, k: int) -> tuple[TensorMap, TensorMap]:
        """The tensor maps of the scale factors of A and of B, for a problem's sizes (elements). The formats must have some.

        >>> from stridewright.kernels.config import Problem
        >>> config = GemmConfig(arch="sm_100a", problem=Problem(a="mxfp8", b="mxfp8")).replace(tile_k=128, stages=3)
        >>> [one.shape for one in derive(config).scale_maps(300, 64, 512)]
        [(256, 4, 3), (256, 4, 1)]
        """
        if self.scales is None:
            raise ValueError(f"{self.config.problem.a} and {self.config.problem.b} have no scale factors")
        a, b = scale_tensors(self.config.problem, m, n, k)
        return scale_map(a, self.scales.a, self.config.arch), scale_map(b, self.scales.b, self.config.arch)


def panel_tile(rows: int, columns: int, dtype: str = "bf16") -> SwizzledLayout:
    """A panel of D in shared memory under the 128-byte swizzle: (row, column) -> element offset, rows 128 bytes apart.

    >>> print(panel_tile(32, 64), panel_tile(16, 48), panel_tile(32, 32, "f32"))
    S<3,3,3> o ((8,4),(64,1)):((64,512),(1,0)) S<3,3,3> o (16,48):(64,1) S<3,2,3> o ((8,4),(32,1)):((32,256),(1,0))
    """
    width = 128 * 8 // data_type(dtype).bits
    panel = smem_tile("128B", "k", dtype, rows, width)
    if columns < width:
        panel = compose(panel, (rows, columns))
    if not isinstance(panel, SwizzledLayout):
        raise AssertionError(f"{panel} has no swizzle")
    return panel


def fragment_of(config: GemmConfig) -> Fragment:
    """Which elements of D the epilogue's registers hold: the accumulator's layout, read through tcgen05.ld.

    Where a tile's rows fill all 32 lanes of a warp, 32x32b gives each thread a row; where only 16 lanes hold rows
    (M = 64), 16x32bx2 gives each row to two threads, half the columns each. Either way a thread's values lie side by
    side in D.

    >>> fragment = fragment_of(GemmConfig(arch="sm_100a"))
    >>> fragment.shape, fragment.values, fragment.pieces, str(fragment.row), str(fragment.column)
    ('32x32b', 32, 8, '(32,4):(1,32)', '(32,4,32,8):(0,0,1,32)')
    >>> fragment = fragment_of(GemmConfig(arch="sm_100a").replace(tile_m=64))
    >>> fragment.shape, str(fragment.row), str(fragment.column)
    ('16x32bx2', '((16,2),4):((1,0),16)', '((16,2),4,32,4):((0,32),0,1,64)')
    """
    m, n, group = config.tile.m, config.tile.n, ctas(config)
    accumulator = accumulator_of_tile(config)
    rows, total = m // group, accumulator_width(config)
    narrow = path_of(config) == "F"
    parts = 2 if narrow else 1
    # Of staged results a piece lies in one panel; beside sums that are finished, registers hold what finishes them.
    most = 16 if uses_terms(config) else 32
    if config.epilogue.store == "tma":
        most = min(most, panel_columns(config.problem) // parts)
    values = next(count for count in (32, 16, 8) if total % (count * parts) == 0 and count <= most)
    access = tensor_memory_access("16x32bx2" if narrow else "32x32b", values)
    # (thread, bit of a register) -> lane * 2^21 + bit: every 32nd bit, in columns of 32 bits.
    bits = compose(access.value_id, access.registers)
    lanes = _divided(bits[0], 32)
    value = _divided(compose(bits[1], Layout(values, 32)), 32)
    columns, pieces = values * parts, total // (values * parts)
    place = Layout(
        (lanes.shape, EPILOGUE_WARPS, value.shape, pieces),
        (lanes.stride, WARP_LANES * LANE, value.stride, columns if pieces > 1 else 0),
    )
    element = compose(left_inverse(accumulator), place)
    row = compose(Layout((rows, n), (1, 0)), element)
    column = compose(Layout((rows, n), (0, 1)), element)
    for part in (row[2], row[3]):
        if size(part) > 1 and any(part(i) for i in range(size(part))):
            raise AssertionError(f"a thread of {place} has several rows: {row}")
    return Fragment(
        shape=access.shape,
        values=values,
        columns=columns,
        pieces=pieces,
        place=place,
        element=element,
        row=Layout((row[0].shape, row[1].shape), (row[0].stride, row[1].stride)),
        column=column,
    )


def _divided(layout: Layout, by: int) -> Layout:
    def each(stride: object) -> object:
        if isinstance(stride, tuple):
            return tuple(each(one) for one in stride)
        if not isinstance(stride, int) or stride % by:
            raise AssertionError(f"{layout}: strides must be multiples of {by}")
        return stride // by

    return Layout(layout.shape, each(layout.stride))


def chunk_of(config: GemmConfig, fragment: Fragment) -> int:
    """Neighbouring results that a thread stores at a time: 16 bytes of them, or all it has.

    >>> config = GemmConfig(arch="sm_100a")
    >>> chunk_of(config, fragment_of(config))
    8
    """
    return min(16 // result_bytes(config.problem), fragment.values)


def staging_rows(config: GemmConfig, fragment: Fragment) -> SwizzledLayout:
    """(lane, chunk of 16 bytes, piece of the panel) -> byte offset in the warp's panel of the chunk.

    >>> config = GemmConfig(arch="sm_100a")
    >>> print(staging_rows(config, fragment_of(config)))
    S<3,4,3> o (32,4,2):(128,16,64)
    """
    dtype, size, width = config.problem.d, result_bytes(config.problem), panel_columns(config.problem)
    rows, group, chunk = config.tile.m // ctas(config), panel_rows(config), chunk_of(config, fragment)
    pieces = min(width // fragment.columns, fragment.pieces)
    lanes, value = fragment.place[0], fragment.place[2]
    if value != Layout(fragment.values):
        raise AssertionError(f"values of {fragment.place} are not side by side")
    wide = Layout(
        (lanes.shape, fragment.values // chunk, pieces), (lanes.stride, chunk, fragment.columns if pieces > 1 else 0)
    )
    # Of one warp, hence rows below `group`: the accumulator's map without what is beyond a panel.
    element = compose(left_inverse(accumulator_of_tile(config)), wide)
    panel_element = compose(Layout((group, rows // group, config.tile.n), (1, 0, group)), element)
    addresses: SwizzledLayout = compose(byte_offsets(panel_tile(group, width, dtype), size), panel_element)
    return addresses


def accumulator_of_tile(config: GemmConfig) -> Layout:
    """(row of this CTA, column) -> lane << 16 | column of tensor memory.

    >>> print(accumulator_of_tile(GemmConfig(arch="sm_100a").replace(tile_m=32, stationary=True)))
    (32,(64,4)):(65536,(1,2097152))
    """
    return accumulator_layout(config.tile.m, config.tile.n, ctas(config), bool(config.schedule.stationary))


def worst_report(addresses: SwizzledLayout) -> BankReport:
    """The most conflicted of all staging stores of a panel.

    >>> config = GemmConfig(arch="sm_100a")
    >>> worst_report(staging_rows(config, fragment_of(config))).ratio
    1.0
    """
    chunks, pieces = (int(size(addresses.layout[mode])) for mode in (1, 2))
    reports = [
        bank_report(addresses, Access(bytes=16, op="st", lanes=tuple((lane, chunk, piece) for lane in range(32))))
        for chunk in range(chunks)
        for piece in range(pieces)
    ]
    return max(reports, key=lambda report: report.ratio)


def plan_in_turn(requests: list[Request]) -> Plan:
    """Tensor memory given out in the order of the requests, the accumulators from column 0 on.

    >>> plan_in_turn([Request("accumulator 0", 16), Request("A of slot 0", 32)])["A of slot 0"].column
    16
    """
    regions, column = [], 0
    for request in requests:
        regions.append(Region(request, column))
        column += request.columns
    return Plan(tuple(regions), max(1 << (column - 1).bit_length(), MINIMUM_COLUMNS), column)


@lru_cache(maxsize=64)
def derive(config: GemmConfig, swizzle: str | None = None, threads: int | None = None) -> Derivation:
    """Everything that follows from ``config``. Raises :class:`ConfigError` if it is not valid.

    ``swizzle`` forces both operands' mode (the first rung of the ladder stages them without one), ``threads`` are those of
    a CTA (the first rungs have four warps; None: those of the configuration).

    >>> derivation = derive(GemmConfig(arch="sm_100a"))
    >>> hex(derivation.a.descriptor), hex(derivation.instruction_descriptor), derivation.plan.columns
    ('0x4000404000010000', '0x8400490', 256)
    """
    from .blackwell_steps import steps

    config.require_valid()
    tile, problem, group = config.tile, config.problem, ctas(config)
    a = operand_tile("A", tile.m // group, config, swizzle, config.cluster.n)
    b = operand_tile("B", tile.n // group, config, swizzle, config.cluster.m)
    count = config.pipeline.accumulators
    scales, types = tile_scales(config, instruction_k(problem)), scaled_types(problem)
    stationary = bool(config.schedule.stationary)
    requests = [accumulator_request(f"accumulator {i}", tile.m, tile.n, group, stationary) for i in range(count)]
    requests += slot_requests(config)
    if scales is not None:
        requests += [Request(f"scale factors of slot {i}", scales.columns) for i in range(config.pipeline.stages)]
    plan = plan_in_turn(requests)
    first = [plan[f"accumulator {i}"].column for i in range(count)]
    offsets = Layout(count, first[1] - first[0] if count > 1 else 0)
    if [offsets(i) for i in range(count)] != first:
        raise AssertionError(f"accumulators of {plan.explain()} are not evenly apart")
    fragment = fragment_of(config)
    staging = addresses = report = None
    if config.epilogue.store == "tma":
        staging = panel_tile(panel_rows(config), panel_columns(problem), problem.d)
        addresses = staging_rows(config, fragment)
        report = worst_report(addresses)
    offset, shared_map = 0, []
    for use, length in shared_parts(config).items():
        shared_map.append((use, offset, length))
        offset += length
    derivation = Derivation(
        config=config,
        ctas=group,
        threads=config.threads if threads is None else threads,
        a=a,
        b=b,
        instruction_descriptor=instruction_descriptor(
            kind_of(problem),
            tile.m,
            tile.n,
            *multiplied(problem),
            accumulator_of(problem),
            problem.a_major,
            problem.b_major,
            scale=types[0].scale if types else "",
            cta_group=group,
            ws=stationary,
        ),
        plan=plan,
        accumulator=accumulator_of_tile(config),
        accumulator_offsets=offsets,
        fragment=fragment,
        staging=staging,
        staging_addresses=addresses,
        staging_report=report,
        shared_map=tuple(shared_map),
        scales=scales,
        left=tensor_a(config, a, plan),
        steps=(),
    )
    return dataclasses.replace(derivation, steps=tuple(steps(derivation)))
