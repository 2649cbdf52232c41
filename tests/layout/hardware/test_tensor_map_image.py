"""The bytes of a tensor map: all that an H200's driver encoded, and the way back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stridewright.layout.hardware import HardwareError, TensorMap
from stridewright.layout.hardware.tensor_map_image import decode_image, encode_image, read_words

from .test_tensor_map import tensor_map

ORACLE = json.loads((Path(__file__).parents[2] / "data" / "h200" / "tma_driver.json").read_text())


def test_every_encoded_map_has_the_drivers_bytes() -> None:
    assert len(ORACLE["encoded"]) >= 100
    for number, image in ORACLE["encoded"]:
        row = dict(zip(ORACLE["fields"], ORACLE["rows"][number], strict=True))
        address = ORACLE["address_base"] + row["address"]
        assert encode_image(tensor_map(row), address).hex() == image, row


def test_decoding_gives_back_the_map_and_its_address() -> None:
    for number, image in ORACLE["encoded"]:
        row = dict(zip(ORACLE["fields"], ORACLE["rows"][number], strict=True))
        decoded, address = decode_image(bytes.fromhex(image))
        assert (decoded, address) == (tensor_map(row), ORACLE["address_base"] + row["address"])


def test_unknown_bits_and_architectures_are_refused() -> None:
    image = bytearray(encode_image(TensorMap("u8", (64,), (), (64,)), 0))
    image[80] = 1
    with pytest.raises(HardwareError, match="no known sm_90 map"):
        decode_image(bytes(image))
    with pytest.raises(HardwareError, match="128 bytes"):
        decode_image(bytes(64))
    with pytest.raises(HardwareError, match="sm_90 alone"):
        encode_image(TensorMap("u8", (64,), (), (64,), arch="sm_100a"), 0)
    with pytest.raises(HardwareError, match="not defined"):
        decode_image(b"\xff" * 128)
    with pytest.raises(HardwareError, match=r"address=8"):
        encode_image(TensorMap("u8", (64,), (), (64,)), 8)


@pytest.mark.parametrize(
    ("head", "row", "dtype"),
    [(0x466A2, 384, "e2m3"), (0x46622, 256, "e2m1_padded")],
)
def test_maps_of_padded_values_are_read_as_nvidias_compiler_writes_them(head: int, row: int, dtype: str) -> None:
    """The first 15 words that the CuTe DSL 4.8.1 made for 256 x 512 values of 6 and 4 bits, boxes of 128 x 128, swizzle 128B."""
    words = [0x10000, 0x7F10, head & ~2, row >> 4, row << 4, 0, 0, 0, 511, 255, 0, 0, 0, 0x7F << 24, 0x7F]
    tensor_map, address = read_words(words)
    assert address == 0x7F1000010000
    assert (tensor_map.dtype, tensor_map.shape, tensor_map.box, tensor_map.swizzle, tensor_map.arch) == (
        dtype, (512, 256, 1), (128, 128, 1), "128B", "sm_100a",
    )  # fmt: skip
    assert tensor_map.strides_bytes == (row, row << 8)
    assert tensor_map.problems(address) == []
