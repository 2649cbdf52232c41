"""What lies at an address of a GEMM's shared memory, in the terms of its tiles: which slot, which element, which barrier.

The emulator speaks of addresses, since it knows nothing of the kernel; the kernel's layouts say what they mean.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from stridewright.kernels.hopper import ELEMENT_BYTES, PANEL_COLUMNS, Derivation
from stridewright.kernels.hopper_rules import ALIGNMENT_SLACK, NUMBER, panel_rows
from stridewright.layout import SwizzledLayout, idx2crd, left_inverse, size

if TYPE_CHECKING:
    from .emulator import Race

_RANK_SHIFT = 24
"""Bits of an address above the offset in its block: the rank in the cluster, as the emulator's windows have it."""


def describe(derivation: Derivation, address: int) -> str:
    """What stands at this shared-memory address (bytes, as the emulator reports it); "" outside the kernel's map.

    >>> from stridewright.kernels.config import GemmConfig
    >>> from stridewright.kernels.hopper import derive
    >>> describe(derive(GemmConfig()), 1024 + 16384 + 128 + 16), describe(derive(GemmConfig()), 1024 + 229376 + 8)
    ('A(1, 0) of slot 1', 'full[1]')
    """
    # The map begins at the first multiple of 1024 after what the system keeps.
    offset = (address & ((1 << _RANK_SHIFT) - 1)) - ALIGNMENT_SLACK
    for use, start, length in derivation.shared_map:
        if not start <= offset < start + length:
            continue
        within = offset - start
        if use == "barriers":
            stages = derivation.config.pipeline.stages
            return f"full[{within // 8}]" if within < 8 * stages else f"empty[{within // 8 - stages}]"
        if use == NUMBER:
            return NUMBER
        if use == "staging of D":
            panel = panel_rows(derivation.config) * PANEL_COLUMNS * ELEMENT_BYTES
            consumer, buffer = divmod(within // panel, derivation.config.epilogue.buffers)
            return f"staging buffer {buffer} of consumer {consumer}, byte {within % panel}"
        operand = derivation.a if use == "tiles of A" else derivation.b
        slot, byte = divmod(within, operand.slot_bytes)
        row, k = _coordinate(operand.layout, byte // ELEMENT_BYTES)
        return f"{operand.name}({row}, {k}) of slot {slot}"
    return ""


def _coordinate(layout: SwizzledLayout, element: int) -> tuple[int, int]:
    """(row, k) of the element at this offset: the swizzle is its own inverse, and the layout under it is a bijection."""
    index = int(left_inverse(layout.layout)(layout.swizzle(element)))
    rows, columns = size(layout.layout[0]), size(layout.layout[1])
    row, k = idx2crd(index, (rows, columns))
    return int(row), int(k)


def placed(derivation: Derivation, races: tuple[Race, ...]) -> tuple[Race, ...]:
    """The races, each on shared memory with what stands at its address."""
    return tuple(
        dataclasses.replace(race, where=describe(derivation, race.address)) if race.space == "shared" else race
        for race in races
    )


def legend(derivation: Derivation, text: str) -> str:
    """``text`` with a line for every shared-memory address in it that the kernel's map explains."""
    meanings = {number: describe(derivation, int(number, 16)) for number in re.findall(r"\b0x[0-9a-f]+\b", text)}
    lines = [f"  {number} is {meaning}" for number, meaning in meanings.items() if meaning]
    return "\n".join([text, *lines])
