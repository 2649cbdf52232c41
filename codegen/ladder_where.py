"""What lies at an address of a ladder rung's shared memory, in the terms of its tiles, as ``where`` says it of the product's kernel."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from stridewright.kernels.hopper import ELEMENT_BYTES, PANEL_COLUMNS, swizzled_tile
from stridewright.kernels.ladder import ALIGNMENT, RungDerivation

from .where import _RANK_SHIFT, _coordinate

if TYPE_CHECKING:
    from .emulator import Race

_PANEL_BYTES = 64 * PANEL_COLUMNS * ELEMENT_BYTES


def describe(derivation: RungDerivation, address: int) -> str:
    """What stands at this shared-memory address (bytes, as the emulator reports it); "" outside the rung's map.

    >>> from stridewright.kernels.ladder import derive, find
    >>> describe(derive(find("7")), 1024 + 16384 + 128 + 16), describe(derive(find("7")), 1024 + 196608 + 40)
    ('A(1, 0) of slot 1', 'empty[1]')
    """
    spec = derivation.spec
    # The map begins at the first multiple of 1024 after what the system keeps.
    offset = (address & ((1 << _RANK_SHIFT) - 1)) - ALIGNMENT
    for use, start, length in derivation.shared_map:
        if not start <= offset < start + length:
            continue
        within = offset - start
        if use == "barriers":
            if spec.stages == 1:
                return "loaded"
            return f"full[{within // 8}]" if within < 8 * spec.stages else f"empty[{within // 8 - spec.stages}]"
        if use == "staging of D":
            consumer, buffer = divmod(within // _PANEL_BYTES, spec.staging_buffers)
            return f"staging buffer {buffer} of consumer {consumer}, byte {within % _PANEL_BYTES}"
        slot, byte = divmod(within, length // spec.stages)
        rows = spec.tile_m if use == "tiles of A" else spec.tile_n
        row, k = _coordinate(swizzled_tile(rows, spec.tile_k), byte // ELEMENT_BYTES)
        return f"{use[-1]}({row}, {k})" + (f" of slot {slot}" if spec.stages > 1 else "")
    return ""


def placed(derivation: RungDerivation, races: tuple[Race, ...]) -> tuple[Race, ...]:
    """The races, each on shared memory with what stands at its address."""
    return tuple(
        dataclasses.replace(race, where=describe(derivation, race.address)) if race.space == "shared" else race
        for race in races
    )


def legend(derivation: RungDerivation, text: str) -> str:
    """``text`` with a line for every shared-memory address in it that the rung's map explains."""
    meanings = {number: describe(derivation, int(number, 16)) for number in re.findall(r"\b0x[0-9a-f]+\b", text)}
    return "\n".join([text, *(f"  {number} is {meaning}" for number, meaning in meanings.items() if meaning)])
