"""An address of a kernel's shared memory, said in the terms of its tiles."""

from __future__ import annotations

import pytest

from stridewright.codegen.where import describe, legend
from stridewright.kernels.config import GemmConfig
from stridewright.kernels.hopper import OperandTile, derive

DERIVATION = derive(GemmConfig().replace(tile_m=128, tile_n=64, tile_k=128, stages=3))
OFFSETS = {use: offset for use, offset, _ in DERIVATION.shared_map}
BASE = 1024  # where the emulator's blocks, like the hardware's, begin their dynamic shared memory


@pytest.mark.parametrize("tile", [DERIVATION.a, DERIVATION.b], ids=["A", "B"])
def test_every_element_is_found_where_its_layout_puts_it(tile: OperandTile) -> None:
    start = OFFSETS[f"tiles of {tile.name}"]
    for slot in range(3):
        for row, k in ((0, 0), (1, 0), (7, 63), (8, 64), (63, 127), (17, 40)):
            address = BASE + start + slot * tile.slot_bytes + 2 * tile.layout(row, k)
            assert describe(DERIVATION, address) == f"{tile.name}({row}, {k}) of slot {slot}"
            assert describe(DERIVATION, address + (1 << 24)) == f"{tile.name}({row}, {k}) of slot {slot}"


def test_barriers_are_named_by_slot_and_the_rest_is_nothing() -> None:
    parts = {use: (offset, length) for use, offset, length in DERIVATION.shared_map}
    offset, length = parts["barriers"]
    assert [describe(DERIVATION, BASE + offset + 8 * i) for i in range(6)] == [
        *(f"full[{slot}]" for slot in range(3)),
        *(f"empty[{slot}]" for slot in range(3)),
    ]
    assert describe(DERIVATION, BASE + offset + length) == ""
    assert describe(DERIVATION, 0) == ""
    staging = parts["staging of D"][0]
    assert describe(DERIVATION, BASE + staging + 3 * 8192 + 5) == "staging buffer 1 of consumer 1, byte 5"


def test_a_legend_explains_the_addresses_of_a_text() -> None:
    barrier = BASE + OFFSETS["barriers"] + 8
    text = f"waits on mbarrier {barrier:#x}, and 0x7 is no address of it"
    assert legend(DERIVATION, text) == f"{text}\n  {barrier:#x} is full[1]"
