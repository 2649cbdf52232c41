"""Fields set one after the other make the bytes that an H200's driver writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stridewright.layout.hardware import HardwareError, TensorMap, encode_image
from stridewright.layout.hardware.tensor_map_replace import ELEMENT_TYPES, FIELDS, read_image, replaced

DRIVER = json.loads((Path(__file__).parents[2] / "data/h200/tma_driver.json").read_text())
FIELD_BYTES = 60
"""What comes after is derived by the driver, or constant."""


def rows() -> list[dict[str, Any]]:
    return [
        dict(zip(DRIVER["fields"], DRIVER["rows"][row], strict=True)) | {"image": bytes.fromhex(image)}
        for row, image in DRIVER["encoded"]
    ]


def made_on_device(row: dict[str, Any], start: bytes) -> bytes:
    rank = row["rank"]
    image = replaced(start, "global_address", DRIVER["address_base"] + row["address"])
    image = replaced(image, "rank", rank - 1)
    for ordinal in range(rank):
        image = replaced(image, "global_dim", row["dims"][ordinal], ordinal)
        image = replaced(image, "box_dim", row["box"][ordinal], ordinal)
        image = replaced(image, "element_stride", row["element_strides"][ordinal], ordinal)
    for ordinal in range(rank - 1):
        image = replaced(image, "global_stride", row["strides"][ordinal], ordinal)
    image = replaced(image, "elemtype", ELEMENT_TYPES.index(row["dtype"]))
    image = replaced(image, "interleave_layout", ("NONE", "16B", "32B").index(row["interleave"]))
    image = replaced(image, "swizzle_mode", ("NONE", "32B", "64B", "128B").index(row["swizzle"]))
    return replaced(image, "fill_mode", int(row["oob_fill"] != "NONE"))


def test_a_zero_start_becomes_the_drivers_image() -> None:
    promotion = 0b11 << 17
    for row in rows():
        want = bytearray(row["image"][:FIELD_BYTES])
        # L2 promotion has no field to replace.
        want[8:12] = (int.from_bytes(want[8:12], "little") & ~promotion).to_bytes(4, "little")
        assert made_on_device(row, bytes(128))[:FIELD_BYTES] == bytes(want)


def test_any_start_becomes_the_drivers_image() -> None:
    found = rows()
    for row, other in zip(found, found[1:] + found[:1], strict=True):
        if row["rank"] >= other["rank"] and row["l2_promotion"] == other["l2_promotion"]:
            assert made_on_device(row, other["image"])[:FIELD_BYTES] == row["image"][:FIELD_BYTES]


def test_what_was_made_reads_as_the_map_it_says() -> None:
    tensor_map = TensorMap("bf16", (4096, 7, 3), (8192, 1 << 37), (32, 4, 2), "64B", (1, 2, 1), oob_fill="nan")
    assert read_image(encode_image(tensor_map, 1 << 40)) == (tensor_map, 1 << 40)


@pytest.mark.parametrize(
    ("field", "value", "ordinal"),
    [
        ("rank", 5, 0), ("box_dim", 0, 0), ("box_dim", 257, 1), ("box_dim", 8, 5), ("global_dim", 0, 0), ("global_stride", 24, 0),
        ("global_stride", 1 << 40, 1), ("global_stride", 16, 4), ("element_stride", 9, 0), ("elemtype", 13, 0), ("swizzle_mode", 4, 0),
        ("interleave_layout", 3, 0), ("fill_mode", 2, 0), ("swizzle_atomicity", 0, 0), ("rank", 1, 1),
    ],
)  # fmt: skip
def test_what_sm_90_has_not_is_refused(field: str, value: int, ordinal: int) -> None:
    with pytest.raises(HardwareError):
        replaced(bytes(128), field, value, ordinal)


def test_a_map_that_no_driver_would_take_is_refused_when_read() -> None:
    image = replaced(replaced(bytes(128), "box_dim", 17), "global_dim", 100)
    with pytest.raises(HardwareError, match="box"):
        read_image(image)


def test_every_field_of_sm_90_is_there() -> None:
    assert len(FIELDS) == 10
