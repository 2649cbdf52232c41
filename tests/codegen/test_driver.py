"""The driver binding, against a stand-in for libcuda where there is no GPU."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stridewright.codegen import driver
from stridewright.layout.hardware import TensorMap


class StandIn:
    """Answers like libcuda and remembers what cuTensorMapEncodeTiled was given."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.image = bytes(range(128))
        self.seen: SimpleNamespace | None = None

    def cuGetErrorName(self, status: int, name: Any) -> int:
        ctypes.cast(name, ctypes.POINTER(ctypes.c_char_p))[0] = b"CUDA_ERROR_INVALID_VALUE"
        return 0

    def cuTensorMapEncodeTiled(self, *given: Any) -> int:
        out, dtype, rank, address, dims, strides, box, steps, inter, swizzle, l2, oob = given
        self.seen = SimpleNamespace(
            out=out.value,
            dtype=dtype.value,
            address=address.value,
            dims=list(dims)[: rank.value],
            strides=list(strides)[: rank.value - 1],
            box=list(box)[: rank.value],
            steps=list(steps)[: rank.value],
            enums=(inter.value, swizzle.value, l2.value, oob.value),
        )
        ctypes.memmove(out.value, self.image, 128)
        return self.status


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()
    monkeypatch.setattr(driver, "cuda_driver", lambda: made)
    return made


def test_tensor_map_reaches_the_driver_field_by_field(stand_in: StandIn) -> None:
    tensor_map = TensorMap(
        dtype="bf16", shape=(256, 512), strides_bytes=(512,), box=(64, 128), swizzle="128B", l2_promotion="128B"
    )
    driver.encode_tensor_map(tensor_map, 0x7F0000000000)
    assert stand_in.seen is not None
    assert stand_in.seen.dtype == 9  # CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
    assert stand_in.seen.address == 0x7F0000000000
    assert (stand_in.seen.dims, stand_in.seen.strides) == ([256, 512], [512])
    assert (stand_in.seen.box, stand_in.seen.steps) == ([64, 128], [1, 1])
    assert stand_in.seen.enums == (0, 3, 2, 0)  # no interleave, SWIZZLE_128B, L2_128B, zero fill
    assert stand_in.seen.out % 128 == 0


def test_encoded_map_is_one_scalar_of_128_bytes(stand_in: StandIn) -> None:
    encoded = driver.encode_tensor_map(TensorMap("u8", (256,), (), (256,)), 4096)
    assert (encoded.size, encoded.dtype.kind, encoded.nbytes) == (1, "V", 128)
    assert encoded.tobytes() == bytes(range(128))
    assert stand_in.seen is not None
    assert stand_in.seen.strides == []


def test_broken_rules_are_listed_before_the_driver_is_asked(stand_in: StandIn) -> None:
    with pytest.raises(ValueError, match="no tensor map") as caught:
        driver.encode_tensor_map(TensorMap("u8", (1000, 8), (1001,), (512, 8)), 4096)
    assert "box[0]=512" in str(caught.value)
    assert "strides_bytes[0]=1001" in str(caught.value)
    with pytest.raises(ValueError, match="address"):
        driver.encode_tensor_map(TensorMap("u8", (1024, 8), (1024,), (128, 8)), 4096 + 8)
    assert stand_in.seen is None


def test_refusal_by_the_driver_names_the_call_and_what_it_was_given(stand_in: StandIn) -> None:
    stand_in.status = 1
    said = r"cuTensorMapEncodeTiled failed: CUDA_ERROR_INVALID_VALUE \(1\).*box="
    with pytest.raises(driver.DriverError, match=said):
        driver.encode_tensor_map(TensorMap("u8", (256,), (), (256,)), 4096)


def test_driver_older_than_tensor_maps_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "cuda_driver", lambda: SimpleNamespace())
    with pytest.raises(driver.DriverError, match=r"CUDA 12\.0 or newer"):
        driver.encode_tensor_map(TensorMap("u8", (256,), (), (256,)), 4096)


def test_missing_driver_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *rest: Any) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(driver.ctypes, "CDLL", missing)
    driver.cuda_driver.cache_clear()
    try:
        with pytest.raises(driver.DriverError, match="no NVIDIA driver is installed"):
            driver.device_count()
    finally:
        driver.cuda_driver.cache_clear()


def test_map_of_an_affected_blackwell_driver_is_repaired(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    with_gaps = TensorMap("f16", (64, 64), (192,), (64, 64), arch="sm_100a")
    stand_in.image = bytes([255] * 128)
    monkeypatch.setattr(driver, "driver_version", lambda: 13020)
    untouched = driver.encode_tensor_map(with_gaps, 4096).tobytes()
    repaired = driver.encode_tensor_map(with_gaps, 4096, allocation_bytes=12288).tobytes()
    differing = int.from_bytes(untouched, "little") ^ int.from_bytes(repaired, "little")
    assert differing == 1 << 85
    monkeypatch.setattr(driver, "driver_version", lambda: 13040)
    assert driver.encode_tensor_map(with_gaps, 4096, allocation_bytes=12288).tobytes() == untouched


@pytest.mark.gpu
def test_driver_accepts_what_the_rules_accept() -> None:
    pytest.importorskip("cupy").cuda.runtime.free(0)  # the driver encodes only where a context is current
    tensor_map = TensorMap(dtype="bf16", shape=(256, 512), strides_bytes=(512,), box=(64, 128), swizzle="128B")
    first = driver.encode_tensor_map(tensor_map, 0x7F0000000000)
    assert first.tobytes() == driver.encode_tensor_map(tensor_map, 0x7F0000000000).tobytes()
    assert first.tobytes() != np.zeros(128, np.uint8).tobytes()
