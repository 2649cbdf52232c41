"""Collector buffers of tcgen05.mma: operands that one instruction leaves for those after it (PTX ISA 9.1, section 9.7.16.10.9).

    at_work(held, use, form, sides, step, lane, arch)       before the multiplication; `held` are the block's buffers, `use` is (buffer, operation)

PTX: `fill` reads the operand into the buffer, `use` and `lastuse` say that it "can be read from" there, and need an earlier fill; `discard` gives the
contents up. An instruction that uses a buffer names the operand all the same, and nothing says which of the two is read: so both must hold the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from .faults import DescriptorError
from .operands import read_chunks
from .tcgen05_mma import Form, Side, Step, memory_operand, operand_tables

__all__ = ["OPERATIONS", "at_work"]

OPERATIONS = ("discard", "fill", "use", "lastuse")

Held = dict[str, tuple[object, bytes]]


def _operand(form: Form, sides: Sequence[Side], step: Step, lane: int, arch: str, of_a: bool) -> tuple[object, bytes]:
    """What tells one operand from another: its type and shape, and its bytes in each block."""
    parts = []
    for side in sides:
        left, right = operand_tables(form, side.shared, (step,), arch)
        if of_a and left is None:
            parts.append(memory_operand(form, side.memory, step, lane).tobytes())
        else:
            table = left if of_a and left is not None else right
            parts.append(read_chunks(side.shared, table).tobytes())
    fields = form.descriptor
    kind = (
        (fields.kind, fields.a, fields.a_major, form.rows) if of_a else (fields.kind, fields.b, fields.b_major, form.n)
    )
    return kind, b"".join(parts)


def at_work(
    held: Held, use: tuple[str, str], form: Form, sides: Sequence[Side], step: Step, lane: int, arch: str
) -> None:
    """What an instruction does with its collector buffer. Raises DescriptorError where the buffer does not hold its operand."""
    buffer, operation = use
    if operation == "discard":
        held.pop(buffer, None)
        return
    operand = _operand(form, sides, step, lane, arch, buffer == "a")
    if operation == "fill":
        held[buffer] = operand
        return
    found = held.get(buffer)
    if found is None:
        raise DescriptorError(
            "unknown",
            f"tcgen05.mma with .collector::{buffer}::{operation}: no instruction before it has filled that buffer, or one has given it up",
        )
    if found != operand:
        raise DescriptorError(
            "unknown",
            f"tcgen05.mma with .collector::{buffer}::{operation} names an operand that is not what the buffer was filled with: PTX does not say "
            "which of the two is read",
        )
    if operation == "lastuse":
        del held[buffer]
