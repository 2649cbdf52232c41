"""A in tensor memory: how each slot of A gets there, where it lies, and what that asks of a configuration.

The multiply reads B in shared memory and A there or in tensor memory. ``a_in="tensor"``: the thread that multiplies copies
each slot with tcgen05.cp, which its multiplies follow without a wait. ``a_in="registers"``: a warpgroup takes each slot
through its registers, a thread a row, and writes it with tcgen05.st; on the way 8-bit elements become those of B's 16-bit
format, exactly. Knows layouts and rules; nothing here was run on a Blackwell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from stridewright.layout import Layout, SwizzledLayout, compose
from stridewright.layout.banks import Access, BankReport, bank_report
from stridewright.layout.hardware import Plan, Request, operand_a_layout
from stridewright.layout.hardware.tensor_memory import LANE, LANES

from .blackwell_types import converts, multiplied, operand_formats, padded, shared_bits
from .config import AIn, GemmConfig, Violation
from .hopper import AddressFunction, Constant, Step, byte_offsets

if TYPE_CHECKING:
    from .blackwell import Derivation
    from .blackwell_operands import OperandTile

CHUNK_BYTES = 16
"""What a thread reads of shared memory at a time."""

STORED_COLUMNS = 32
"""Registers that one tcgen05.st writes at most, each a column of the thread's lane."""

STEP_COLUMNS = 8
"""Columns of A of one instruction: 32 bytes of each row (PTX ISA 9.1, section 9.7.16.10.1; CuTe's tmem fragments)."""

CONVERTING_THREADS = 128
"""Of the warpgroup that takes A through registers."""


REGISTERS = {"FEW": 96, "CONVERT": 152, "EPILOGUE": 240}
"""Registers a thread of the three warpgroups where A goes through registers: those that copy, multiply and schedule, those
that take A, the epilogue. An SM has 65536, and 128 threads each take 62464 of them."""


@dataclass(frozen=True)
class TensorA:
    """A's slots in tensor memory."""

    columns: int
    """Of one slot."""
    first: int
    """Column of the first slot."""
    slots: Layout
    """(slot, step) -> columns from the first."""
    element: Layout
    """(row, k) of one instruction -> cell of an element's width, of the lane and columns."""
    chunks: SwizzledLayout | Layout
    """(row, chunk of 16 bytes of K) -> byte of the slot in shared memory."""
    report: BankReport
    """The most conflicted of a warp's reads of chunks."""

    @property
    def stored(self) -> int:
        """Columns that one tcgen05.st writes."""
        return min(self.columns, STORED_COLUMNS)


def slot_columns(config: GemmConfig) -> int:
    """Columns of tensor memory that a slot of A takes: 0 where it stays in shared memory.

    >>> slot_columns(GemmConfig(arch="sm_100a")), slot_columns(GemmConfig(arch="sm_100a").replace(a_in="tensor"))
    (0, 32)
    """
    if config.pipeline.a_in == "shared":
        return 0
    return config.tile.k * shared_bits(multiplied(config.problem)[0]) // 32


def converting_warps(config: GemmConfig) -> int:
    """Warps that take A through registers.

    >>> converting_warps(GemmConfig(arch="sm_100a")), converting_warps(GemmConfig(arch="sm_100a").replace(a_in="registers"))
    (0, 4)
    """
    return CONVERTING_THREADS // 32 if config.pipeline.a_in == "registers" else 0


def slot_requests(config: GemmConfig) -> list[Request]:
    """What is asked of tensor memory for A.

    >>> [one.columns for one in slot_requests(GemmConfig(arch="sm_100a").replace(a_in="tensor", stages=2))]
    [32, 32]
    """
    columns = slot_columns(config)
    return [Request(f"A of slot {i}", columns) for i in range(config.pipeline.stages)] if columns else []


def tensor_a(config: GemmConfig, operand: OperandTile, plan: Plan) -> TensorA | None:
    """Where A lies in tensor memory, None where it stays in shared memory."""
    columns, stages = slot_columns(config), config.pipeline.stages
    if not columns:
        return None
    first = [plan[f"A of slot {i}"].column for i in range(stages)]
    if any(first[i] != first[0] + i * columns for i in range(stages)):
        raise AssertionError(f"slots of A are not side by side: {plan.explain()}")
    steps = columns // STEP_COLUMNS
    bits = shared_bits(multiplied(config.problem)[0])
    size = operand.bits // 8
    elements = CHUNK_BYTES // size
    whole = Layout((operand.rows, config.tile.k // elements), (1, operand.rows * elements))
    layout = operand.layout
    chunks = (
        compose(byte_offsets(layout, size), whole) if isinstance(layout, SwizzledLayout) else compose(layout, whole)
    )
    reports = [
        bank_report(chunks, Access(bytes=CHUNK_BYTES, op="ld", lanes=tuple((lane, chunk) for lane in range(32))))
        for chunk in range(config.tile.k // elements)
    ]
    return TensorA(
        columns=columns,
        first=first[0],
        slots=Layout((stages, steps), (columns if stages > 1 else 0, STEP_COLUMNS if steps > 1 else 0)),
        element=_element_layout(config, bits),
        chunks=chunks,
        report=max(reports, key=lambda report: report.ratio),
    )


def _element_layout(config: GemmConfig, bits: int) -> Layout:
    if bits == 32:
        return Layout((LANES, STEP_COLUMNS), (LANE, 1))
    whole = operand_a_layout(config.tile.m, 32 * STEP_COLUMNS // bits, 2 if config.cluster.pair else 1, bits)
    return Layout(whole[0].shape, whole[0].stride)


def left_violations(config: GemmConfig) -> Iterator[Violation]:
    """What A in tensor memory asks of a tile, and formats that need it.

    >>> [str(one) for one in left_violations(GemmConfig(arch="sm_100a").replace(a_in="tensor", tile_m=64))]
    ["a_in='tensor': takes 128 rows of A in each CTA, a lane of tensor memory each, and tile_m=64 has 64; tile_m=128 works"]
    """
    a_in, problem = config.pipeline.a_in, config.problem
    if a_in not in get_args(AIn):
        words = ", ".join(f'"{word}"' for word in get_args(AIn))
        yield Violation(parameter="a_in", value=repr(a_in), rule=f"must be one of {words}", fix='"shared" works')
        return
    if converts(problem) and a_in != "registers":
        yield Violation(
            parameter="a_in",
            value=repr(a_in),
            rule=f"a of {problem.a} becomes {problem.b} on its way through registers",
            fix='"registers" works',
        )
        return
    if a_in == "shared":
        return
    rows = config.tile.m // (2 if config.cluster.pair else 1)
    pair = bool(config.cluster.pair)
    stored_a = operand_formats(problem)[0]
    for wrong, rule, fix in (
        (rows != LANES, f"takes {LANES} rows of A in each CTA, a lane of tensor memory each, and tile_m={config.tile.m} has {rows}", f"tile_m={LANES * (1 + pair)} works"),
        (bool(config.schedule.stationary), "stands in each quarter of lanes for the weight-stationary multiply, which is not served", "stationary=False works"),
        (problem.a_major == "mn", "reads rows of A, which lie K-major in tensor memory", 'a_major="k" works'),
        (padded(stored_a), f"is not served for {problem.a}, which lies padded", 'a_in="shared" works'),
        (problem.a != multiplied(problem)[0] and not converts(problem), f"is not served beside scale factors ({problem.a})", 'a_in="shared" works'),
        (a_in == "registers" and pair, "is for one CTA: of a pair's loads only the leader knows when they have landed", "pair=False works"),
        (a_in == "registers" and config.cluster.n > 1, "is for tiles that load their A alone: who reads a slot through registers says so at home", "cluster_n=1 works"),
    ):  # fmt: skip
        if wrong:
            yield Violation(parameter="a_in", value=repr(a_in), rule=rule, fix=fix)


def left_step(derivation: Derivation) -> Step:
    """How A comes to tensor memory, in words and constants."""
    config, left = derivation.config, derivation.left
    if left is None:
        raise AssertionError("A stays in shared memory")
    through = config.pipeline.a_in == "registers"
    problem = config.problem
    element = multiplied(problem)[0]
    converted = converts(problem)
    notes = [
        f"Each slot has {left.columns} columns of its own, from {left.first} on: overwritten when the slot has been filled again, "
        "hence after the multiplies that read them.",
    ]
    constants = [Constant("uint32", "TENSOR_A_COLUMN", left.first)]
    layouts = [(f"(row, k) of one instruction -> cell of {element} in tensor memory", str(left.element))]
    functions = [AddressFunction("tensor_a", ("slot", "step"), left.slots, "columns")]
    if through:
        notes += [
            f"A warpgroup takes a slot through registers, a thread a row: {left.report.wavefronts} wavefronts a read of 16 bytes, "
            f"{left.report.ideal} are ideal" + (": no bank conflicts." if left.report.ratio == 1 else "."),
            f"{problem.a} becomes {element} on the way, exactly." if converted else "What is read is written as it is.",
        ]
        words = CHUNK_BYTES // 4 * (2 if converted and derivation.a.bits == 8 else 1)
        constants += [
            *(Constant("int", f"{who}_REGISTERS", count) for who, count in REGISTERS.items()),
            Constant("int", "A_WORDS", words),
            Constant("int", "A_STORED", left.stored),
            Constant("int", "A_STORES", left.columns // left.stored),
            Constant("int", "A_STORE_CHUNKS", left.stored // words),
            Constant("bool", "TO_F16", int(element == "f16")),
            Constant("bool", "A_SIGNED", int(problem.a != "u8")),
        ]
        layouts.append(("(row, chunk of 16 bytes) -> byte of the slot", str(left.chunks)))
        functions.append(AddressFunction("a_chunk", ("row", "chunk"), left.chunks, "bytes"))
    return Step(
        title="A in tensor memory" + (", through registers" if through else ""),
        layouts=tuple(layouts),
        notes=tuple(notes),
        constants=tuple(constants),
        functions=tuple(functions),
    )
