"""The derivation of a Blackwell GEMM, step by step, as the generated source and ``explain`` show it.

Words and constants only: what follows from what is computed in :mod:`stridewright.kernels.blackwell`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stridewright.layout import Layout, SwizzledLayout, size
from stridewright.layout.hardware import (
    decode_instruction_descriptor,
    decode_matrix_descriptor,
    tensor_memory_access,
)

from .blackwell_left import converting_warps, left_step
from .blackwell_rules import (
    ALIGNMENT_SLACK,
    PANEL_BYTES,
    TILE_SLOTS,
    cluster_ctas,
    panel_rows,
    path_of,
    tile_readers,
    uses_terms,
)
from .blackwell_scales import scale_step
from .blackwell_types import accumulator_of, instruction_k, panel_columns, result_bytes
from .hopper import AddressFunction, Constant, Step, byte_offsets

if TYPE_CHECKING:
    from .blackwell import Derivation
    from .blackwell_operands import OperandTile

_NO_SWIZZLE_CHUNK = 8  # elements of a 16-byte chunk


def steps(derivation: Derivation) -> Iterator[Step]:
    """Every step, in the order in which the source has them.

    >>> from stridewright.kernels.blackwell import derive
    >>> from stridewright.kernels.config import GemmConfig
    >>> [step.title for step in derive(GemmConfig(arch="sm_100a")).steps][:3]
    ['The tile, and who computes it', 'A slot of A', 'A slot of B']
    """
    yield _tile_step(derivation)
    if uses_terms(derivation.config):
        yield _fusion_step(derivation)
    yield _operand_step(derivation, derivation.a)
    yield _operand_step(derivation, derivation.b)
    if derivation.scales is not None:
        yield scale_step(derivation)
    if derivation.left is not None:
        yield left_step(derivation)
    yield _tensor_memory_step(derivation)
    yield _shared_step(derivation)
    yield _fragment_step(derivation)
    if derivation.staging is not None:
        yield _staging_step(derivation)


def _tile_step(derivation: Derivation) -> Step:
    config, ctas = derivation.config, derivation.ctas
    tile, schedule = config.tile, config.schedule
    launch = {
        "one": "each computes one tile",
        "static": "a persistent grid takes tiles in turn",
        "clc": "those that run take over the tiles of those that wait (cluster launch control)",
    }[schedule.launch]
    who = "A pair of CTAs computes" if ctas == 2 else "A CTA computes"
    cluster = (
        f" A cluster holds {config.cluster.m} x {config.cluster.n} tiles."
        if config.cluster.m * config.cluster.n > 1
        else ""
    )
    notes = [
        f"{who} {tile.m} x {tile.n} of D at a time{', weight-stationary' if schedule.stationary else ''}; its K runs through slots of {tile.k} elements; {launch}.{cluster}",
        f"{config.pipeline.accumulators} accumulator{'s' * (config.pipeline.accumulators > 1)} in tensor memory"
        + (": one is stored while the next tile goes into the other." if config.pipeline.accumulators > 1 else "."),
    ]
    constants = [
        Constant("int", "TILE_M", tile.m),
        Constant("int", "TILE_N", tile.n),
        Constant("int", "TILE_K", tile.k),
        Constant("int", "K_STEPS", derivation.k_steps),
        Constant("int", "CTAS", ctas),
        Constant("int", "CLUSTER_M", config.cluster.m),
        Constant("int", "CLUSTER_N", config.cluster.n),
        Constant("int", "CLUSTER_CTAS", cluster_ctas(config)),
        Constant("int", "BLOCK_M", tile.m * config.cluster.m),
        Constant("int", "BLOCK_N", tile.n * config.cluster.n),
        Constant("int", "SLOT_COMMITS", config.cluster.m + config.cluster.n - 1 + converting_warps(config)),
        Constant("int", "D_ROWS", tile.m // ctas),
        Constant("int", "STAGES", config.pipeline.stages),
        Constant("int", "ACCUMULATORS", config.pipeline.accumulators),
        Constant("int", "THREADS", derivation.threads),
        Constant("int", "EPILOGUE_WARPS", 4),
        Constant("Form", "FORM", f"FORM_{config.problem.form.upper()}"),
        Constant("Format", "D_FORMAT", _format(config.problem.d)),
        Constant("bool", "INTEGER", int(accumulator_of(config.problem) == "s32")),
    ]
    if schedule.order == "grouped":
        constants.append(Constant("int", "GROUP_M", schedule.group_m))
    if schedule.launch == "clc":
        constants += [
            Constant("int", "TILE_SLOTS", TILE_SLOTS),
            Constant("int", "TILE_READERS", tile_readers(config)),
        ]
        notes.append(
            f"{TILE_SLOTS} answers of launch control may be on their way; {tile_readers(config)} threads read each."
        )
    return Step(title="The tile, and who computes it", notes=tuple(notes), constants=tuple(constants))


def _format(dtype: str) -> str:
    return f"FORMAT_{dtype.upper()}"


def _fusion_step(derivation: Derivation) -> Step:
    fusion = derivation.config.fusion
    words = fusion.expression or fusion.activation
    constants = [
        Constant("bool", "ALPHA", int(fusion.alpha)),
        Constant("bool", "HAS_C", int(bool(fusion.c))),
        Constant("Format", "C_FORMAT", _format(fusion.c or "f32")),
        Constant("Bias", "BIAS", f"BIAS_{fusion.bias.upper() or 'NONE'}"),
        Constant("Format", "BIAS_FORMAT", _format(fusion.bias_format)),
        Constant("bool", "GATED", int(fusion.gated)),
        Constant("bool", "AUX", int(fusion.aux)),
        Constant("bool", "AMAX", int(fusion.amax)),
        Constant("Scales", "SCALES_A", f"SCALES_{fusion.scale_a.upper() or 'NONE'}"),
        Constant("Scales", "SCALES_B", f"SCALES_{fusion.scale_b.upper() or 'NONE'}"),
        Constant("bool", "SCALE_D", int(fusion.scale_d)),
        Constant("bool", "CHANGED", int(fusion.changes_sums)),
    ]
    return Step(
        title="What is done to the sums",
        notes=(
            "acc is a sum times the scales of its rows; x = alpha * acc + beta * C + bias; then "
            + ("nothing" if words == "none" else words)
            + " is applied, then the factor of D."
            + (" Column 2 j of the product is activated and multiplies column 2 j + 1." if fusion.gated else ""),
        ),
        constants=tuple(constants),
    )


def _operand_step(derivation: Derivation, operand: OperandTile) -> Step:
    config, name = derivation.config, operand.name
    rows, letter = ("m", "M") if name == "A" else ("n", "N")
    layouts = [(f"({rows}, k) -> element of the slot", str(operand.layout))]
    if isinstance(operand.layout, SwizzledLayout) and operand.swizzle == "128B" and operand.bits >= 8:
        layouts.append(("the same in bytes", str(byte_offsets(operand.layout, operand.bits // 8))))
    inner, outer = operand.box_span, operand.slice_rows if operand.major == "k" else config.tile.k
    slices = operand.rows // operand.slice_rows
    along = "K" if operand.major == "k" else letter
    functions = [AddressFunction(f"{name.lower()}_step_advance", ("step",), operand.step_advance, "units of 16 bytes")]
    if operand.swizzle == "none" and operand.major == "k":
        functions.append(
            AddressFunction(f"{name.lower()}_place", ("row", "chunk"), _chunk_places(operand.layout), "bytes")
        )
    return Step(
        title=f"A slot of {name}",
        layouts=tuple(layouts),
        notes=(
            f"{operand.rows} rows of {letter} in each CTA, {operand.dtype}, {operand.major.upper()}-major, swizzle {operand.swizzle}."
            + (f" {slices} CTAs load a slice of {operand.slice_rows} each, for all of them." if slices > 1 else ""),
            f"TMA: {operand.boxes} x box {inner} x {outer} elements, one after another along {along}; the barrier expects "
            f"{operand.counted_bytes} bytes, also where the box leaves the tensor."
            + (
                " (The padding between the elements is not counted.)"
                if operand.counted_bytes != operand.slot_bytes
                else ""
            ),
            f"Matrix descriptor at address 0: {operand.descriptor:#018x}.",
            *(f"  {line}" for line in decode_matrix_descriptor(operand.descriptor, config.arch).explain().splitlines()),
            f"Each k-step of {instruction_k(config.problem)} elements adds to the descriptor, in its units of 16 bytes:",
            f"  step -> {operand.step_advance}",
        ),
        constants=(
            Constant("uint32", f"{name}_ROWS", operand.rows),
            Constant("bool", f"{name}_K_MAJOR", int(operand.major == "k")),
            Constant("uint32", f"{name}_SLOT_BYTES", operand.slot_bytes),
            Constant("uint32", f"{name}_COUNTED_BYTES", operand.counted_bytes),
            Constant("int", f"{name}_BOXES", operand.boxes),
            Constant("uint32", f"{name}_BOX_SPAN", operand.box_span),
            Constant("uint32", f"{name}_BOX_STEP", operand.box_step),
            Constant("uint32", f"{name}_SLICE_ROWS", operand.slice_rows),
            Constant("uint32", f"{name}_SLICE_BYTES", operand.slice_bytes),
            Constant("uint64", f"{name}_DESCRIPTOR", operand.descriptor, hexadecimal=True),
        ),
        functions=tuple(functions),
    )


def _chunk_places(layout: Layout | SwizzledLayout) -> Layout:
    """(row, chunk of 8 elements of K) -> byte, of a tile without a swizzle."""
    if isinstance(layout, SwizzledLayout):
        raise AssertionError(f"{layout} has a swizzle")
    rows, chunks = layout[0], layout[1]
    columns = Layout(int(size(chunks)) // _NO_SWIZZLE_CHUNK, int(layout(0, _NO_SWIZZLE_CHUNK)) * 2)
    if any(columns(i) != 2 * layout(0, _NO_SWIZZLE_CHUNK * i) for i in range(int(size(columns)))):
        raise AssertionError(f"chunks of {layout} are not evenly apart")
    doubled = Layout(rows.shape, tuple(2 * stride for stride in rows.stride))
    return Layout((doubled.shape, columns.shape), (doubled.stride, columns.stride))


def _tensor_memory_step(derivation: Derivation) -> Step:
    config, word = derivation.config, derivation.instruction_descriptor
    letter = path_of(config)
    return Step(
        title="Tensor memory, and the multiply",
        layouts=(("(row of this CTA, column) -> lane << 16 | column", str(derivation.accumulator)),),
        notes=(
            f'Layout {letter} (PTX ISA, "tcgen05 data path layout"). {derivation.plan.explain().splitlines()[0]}:',
            *(line for line in derivation.plan.explain().splitlines()[1:]),
            f"Instruction descriptor {word:#010x}: {', '.join(map(str.strip, decode_instruction_descriptor(word, derivation.kind).explain().splitlines()))}.",
        ),
        constants=(
            Constant("int", "TMEM_COLUMNS", derivation.plan.columns),
            Constant("uint32", "INSTRUCTION_DESCRIPTOR", word, hexadecimal=True),
        ),
        functions=(AddressFunction("accumulator_offset", ("accumulator",), derivation.accumulator_offsets, "columns"),),
    )


def _shared_step(derivation: Derivation) -> Step:
    config = derivation.config
    stages, accumulators = config.pipeline.stages, config.pipeline.accumulators
    barriers = derivation.offset("barriers")
    names = ["FULL_BARRIERS", "EMPTY_BARRIERS", "ACCUMULATOR_FULL", "ACCUMULATOR_EMPTY"]
    counts = [stages, stages, accumulators, accumulators]
    if config.schedule.launch == "clc":
        names += ["TILE_FULL", "TILE_EMPTY"]
        counts += [TILE_SLOTS, TILE_SLOTS]
    if config.pipeline.a_in == "registers":
        names.append("A_READY")
        counts.append(stages)
    constants = [
        Constant("uint32", "A_OFFSET", derivation.offset("tiles of A")),
        Constant("uint32", "B_OFFSET", derivation.offset("tiles of B")),
    ]
    if derivation.staging is not None:
        constants.append(Constant("uint32", "STAGING_OFFSET", derivation.offset("staging of D")))
    if derivation.scales is not None:
        for name in "AB":
            constants.append(Constant("uint32", f"SCALE_{name}_OFFSET", derivation.offset(f"scales of {name}")))
    for name, count in zip(names, counts, strict=True):
        constants.append(Constant("uint32", f"{name}_OFFSET", barriers))
        barriers += 8 * count
    if config.schedule.launch == "clc":
        constants.append(Constant("uint32", "ANSWERS_OFFSET", derivation.offset("answers")))
    constants.append(Constant("uint32", "TMEM_ADDRESS_OFFSET", derivation.offset("tensor memory's address")))
    return Step(
        title="Shared memory of a CTA",
        notes=(
            *(f"{offset:>7} .. {offset + length:>7}  {use}" for use, offset, length in derivation.shared_map if length),
            f"{derivation.shared_bytes} bytes to ask for: {ALIGNMENT_SLACK} more, so that offset 0 can be a multiple of "
            f"{ALIGNMENT_SLACK}.",
        ),
        constants=tuple(constants),
    )


def _fragment_step(derivation: Derivation) -> Step:
    from .blackwell import chunk_of

    fragment = derivation.fragment
    access = tensor_memory_access(fragment.shape, fragment.values)
    return Step(
        title="From tensor memory to registers",
        layouts=(
            (
                f"tcgen05.ld {fragment.shape}.x{fragment.values}: (thread, bit) -> bit of the warp's lanes",
                str(access.registers),
            ),
            ("(lane, warp, value, piece) -> lane << 16 | column", str(fragment.place)),
            ("the same -> row + rows * column of this CTA's part of the tile", str(fragment.element)),
        ),
        notes=(
            f"{fragment.pieces} piece{'s' * (fragment.pieces > 1)} of {fragment.columns} columns: {fragment.values} registers a thread at a time.",
            "Warp w may touch lanes 32 * (w % 4) to 32 * (w % 4) + 31 only.",
        ),
        constants=(
            Constant("int", "VALUES", fragment.values),
            Constant("int", "PIECES", fragment.pieces),
            Constant("int", "PIECE_COLUMNS", fragment.columns),
            # What finishes sums needs registers of its own, which code for several pieces at a time would take.
            Constant("int", "PIECES_UNROLLED", 1 if uses_terms(derivation.config) else fragment.pieces),
            Constant("int", "CHUNK", chunk_of(derivation.config, fragment)),
        ),
        functions=(
            AddressFunction("warp_lanes", ("warp",), fragment.place[1], "lane << 16"),
            AddressFunction("fragment_row", ("lane", "warp"), fragment.row, "rows"),
            AddressFunction("fragment_column", ("lane", "warp", "value", "piece"), fragment.column, "columns"),
        ),
    )


def _staging_step(derivation: Derivation) -> Step:
    config, fragment = derivation.config, derivation.fragment
    staging, addresses, report = derivation.staging, derivation.staging_addresses, derivation.staging_report
    if staging is None or addresses is None or report is None:
        raise AssertionError("a staged epilogue has a staging layout")
    rows, columns = panel_rows(config), fragment.columns * fragment.pieces
    width, size = panel_columns(config.problem), result_bytes(config.problem)
    tail = columns % width
    return Step(
        title="From registers to D, through shared memory",
        layouts=(
            ("a warp's panel of D: (row, column) -> element", str(staging)),
            (f"(lane, chunk of {16 // size} values, piece of the panel) -> byte of its 16 bytes", str(addresses)),
        ),
        notes=(
            f"Bank conflicts: {report.wavefronts} wavefronts a store, {report.ideal} are ideal, for every chunk and piece"
            + (": none." if report.ratio == 1 else f": ratio {report.ratio:g}."),
            f"TMA store: box {min(width, columns)} x {rows}, swizzle 128B"
            + (f"; the last panel is {tail} columns wide and has a map of its own." if tail else "."),
        ),
        constants=(
            Constant("int", "PANEL_PIECES", min(width // fragment.columns, fragment.pieces)),
            Constant("int", "TAIL_COLUMNS", tail),
            Constant("int", "PANEL_BYTES", rows * PANEL_BYTES),
            Constant("int", "STAGING_BUFFERS", config.epilogue.buffers),
        ),
        functions=(AddressFunction("staging_offset", ("lane", "chunk", "piece"), addresses, "bytes"),),
    )
