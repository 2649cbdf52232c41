"""The bytes of a tensor map: all that an H200's driver encoded, and the way back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stridewright.layout.hardware import HardwareError, TensorMap
from stridewright.layout.hardware.tensor_map_image import decode_image, encode_image

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
