"""tcgen05.cp that decompresses 4- and 6-bit values, and tcgen05.mma that takes A from what it made (PTX ISA 9.1, section 9.7.16.9.1).

Where in its byte a value comes to lie PTX shows in a figure only: nobody but a tcgen05.mma of that type may read it.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from stridewright.codegen.emulator import EmulationError, EmulationResult
from stridewright.layout.hardware import instruction_descriptor

from .tcgen05_pieces import TEXTBOOK, TEXTBOOK_PARTS, filled, run_blackwell
from .test_tcgen05_forms import exact, place, random_operand

SOURCES = {"e2m1": "b4x16_p64", "e2m3": "b6x16_p32", "e3m2": "b6x16_p32"}
ISSUE = (
    "for (int k = 0; k < 4; ++k) mma(address, (operand(TILE) | BASE) + 2 * k, operand(tile_b) + 2 * k, IDESC, KEEP);"
)
COPIES = (
    'ASM("tcgen05.cp.cta_group::1.128x256bSOURCE [%0], %1;"'
    ' :: "r"(address + 64 + 8 * k), "l"(operand(tile_a) + 2 * k) : "memory");'
)
MULTIPLY = "mma_ts(address, address + 64 + 8 * k, operand(tile_b) + 2 * k, IDESC, k > 0);"


def in_order(row: int, k: int) -> int:
    """Rows of 128 bytes; the kernel's `stage` swizzles them."""
    return row * 128 + k


def product(
    dtype: str, b: str = "e4m3", source: str = "", reads: str = "", copies: str = COPIES, seed: int = 0, **parts: str
) -> tuple[NDArray[np.float32], NDArray[np.float64], EmulationResult]:
    """D (128, 64) = A (128, 128) B (64, 128)^T with A copied to columns 64 and up, the exact product, and the run.

    `source` is how the copy decompresses; `reads` A's type in the instruction descriptor, where it is not `dtype`.
    """
    values, tiles = [], []
    for rows, kind, number in ((128, dtype, 3), (64, b, 4)):
        image = np.zeros(rows * 128, np.uint8)
        values.append(random_operand(rows, 128, kind, number))
        place(image, in_order, values[-1], kind, 0)
        tiles.append(image.view(np.uint16))
    word = instruction_descriptor("f8f6f4", 128, 64, reads or dtype, b, "f32")
    assert ISSUE in TEXTBOOK
    copies = copies.replace("SOURCE", source or ".b8x16." + SOURCES[dtype])
    body = f"for (int k = 0; k < 4; ++k) {{ {copies} {MULTIPLY} }}"
    text = filled(
        TEXTBOOK.replace(ISSUE, body), {**TEXTBOOK_PARTS, **parts}, COLUMNS="128", IDESC=f"{word:#x}", KIND='"f8f6f4"'
    )
    d = np.zeros((128, 64), np.float32)
    result = run_blackwell(text, "textbook", 1, 128, [*tiles, d], seed=seed)
    return d, exact(*values), result


@pytest.mark.parametrize("b", ["e4m3", "e2m1", "e2m3"])
@pytest.mark.parametrize("dtype", SOURCES)
def test_a_is_taken_from_what_a_copy_decompressed(dtype: str, b: str) -> None:
    for seed in range(3):
        d, want, result = product(dtype, b, seed=seed)
        assert (d == want).all()
        assert result.races == ()


@pytest.mark.parametrize(
    ("dtype", "source", "reads", "message"),
    [
        ("e2m1", "", "e4m3", "made of 4-bit values"),
        ("e3m2", "", "e5m2", "made of 6-bit values"),
        ("e2m3", "", "e2m1", "4-bit values from tensor memory that no"),
        ("e2m1", ".b8x16.b6x16_p32", "e2m1", "that no tcgen05.cp.b8x16.b4x16_p64"),
        ("e4m3", " ", "e2m3", "that no tcgen05.cp.b8x16.b6x16_p32"),
    ],
)
def test_values_are_read_as_what_they_are(dtype: str, source: str, reads: str, message: str) -> None:
    with pytest.raises(EmulationError, match=message):
        product(dtype, source=source, reads=reads)


def test_nobody_else_reads_what_a_copy_decompressed() -> None:
    with pytest.raises(EmulationError, match=r"tcgen05\.ld reads the words that tcgen05\.cp made of 4-bit values"):
        product("e2m1", LANE="(warp << 21) + 64")
    with pytest.raises(EmulationError, match=r"\(D\) reads the words"):
        product("e2m1", copies=COPIES + "if (k > 0) " + COPIES.replace("address + 64", "address"))


def test_a_plain_copy_makes_plain_words_again() -> None:
    """Two copies to the same columns: nothing orders them, but the second is issued after the first one's commit."""
    once = COPIES.replace("SOURCE", ".b8x16.b4x16_p64")
    again = "if (k == 0) { " + once + " commit(&done); wait(&done, 0); fence_after(); } "
    d, want, result = product("e4m3", source=" ", copies=again + COPIES, WAIT="wait(&done, 1)")
    assert (d == want).all()
    assert result.races == ()
