"""What lies at an address of a Blackwell GEMM's shared memory, in the terms of its tiles: which slot, which element, which barrier.

The emulator speaks of addresses, since it knows nothing of the kernel; the kernel's layouts say what they mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stridewright.kernels.blackwell import Derivation
from stridewright.kernels.blackwell_operands import OperandTile
from stridewright.kernels.blackwell_rules import ALIGNMENT_SLACK, PANEL_BYTES, TILE_SLOTS, panel_rows
from stridewright.layout import SwizzledLayout, idx2crd, left_inverse, size

if TYPE_CHECKING:
    from collections.abc import Iterator

_RANK_SHIFT = 24
"""Bits of an address above the offset in its block: the rank in the cluster, as the emulator's windows have it."""


def describe(derivation: Derivation, address: int) -> str:
    """What stands at this shared-memory address (bytes, as the emulator reports it); "" outside the kernel's map.

    >>> from stridewright.kernels.blackwell import derive
    >>> from stridewright.kernels.config import GemmConfig
    >>> derivation = derive(GemmConfig(arch="sm_100a"))
    >>> describe(derivation, 1024 + 16384 + 128 + 16), describe(derivation, 1024 + derivation.offset("barriers") + 64)
    ('A(1, 0) of slot 1', 'accumulator full[0]')
    """
    # The map begins at the first multiple of 1024 after what the system keeps.
    offset = (address & ((1 << _RANK_SHIFT) - 1)) - ALIGNMENT_SLACK
    for use, start, length in derivation.shared_map:
        if not start <= offset < start + length:
            continue
        within = offset - start
        if use == "barriers":
            names = list(_barriers(derivation))
            return names[within // 8] if within // 8 < len(names) else use
        if use == "answers":
            return f"answer {within // 16}"
        if use == "staging of D":
            panel = panel_rows(derivation.config) * PANEL_BYTES
            warp, buffer = divmod(within // panel, derivation.config.epilogue.buffers)
            return f"staging buffer {buffer} of epilogue warp {warp}, byte {within % panel}"
        if use.startswith("scales of ") and derivation.scales is not None:
            factors = derivation.scales.a if use.endswith("A") else derivation.scales.b
            slot, byte = divmod(within, factors.bytes)
            row, k = factors.coordinate(byte)
            return f"factor of {use[-1]}({row}, {k}) of slot {slot}"
        if use not in ("tiles of A", "tiles of B"):
            return use
        operand = derivation.a if use == "tiles of A" else derivation.b
        slot, byte = divmod(within, operand.slot_bytes)
        row, k = _coordinate(operand, byte * 8 // operand.bits)
        return f"{operand.name}({row}, {k}) of slot {slot}"
    return ""


def _barriers(derivation: Derivation) -> Iterator[str]:
    """The barriers in the order in which they stand in shared memory."""
    pipeline = derivation.config.pipeline
    slots = TILE_SLOTS if derivation.config.schedule.launch == "clc" else 0
    for ring, count in (("", pipeline.stages), ("accumulator ", pipeline.accumulators), ("answer ", slots)):
        for kind in ("full", "empty"):
            yield from (f"{ring}{kind}[{slot}]" for slot in range(count))
    if derivation.config.pipeline.a_in == "registers":
        yield from (f"A ready[{slot}]" for slot in range(pipeline.stages))


def _coordinate(operand: OperandTile, element: int) -> tuple[int, int]:
    """(row, k) of the element at this offset: a swizzle is its own inverse, and the layout under it is a bijection."""
    layout = operand.layout
    plain = layout.layout if isinstance(layout, SwizzledLayout) else layout
    offset = layout.swizzle(element) if isinstance(layout, SwizzledLayout) else element
    index = int(left_inverse(plain)(offset))
    row, k = idx2crd(index, (int(size(plain[0])), int(size(plain[1]))))
    return int(row), int(k)
