"""Encoding a tensor map through the driver, and the one repair that some drivers need.

The only module here that touches a driver, and only when asked: cuda.bindings is imported on the first call. Launchers
that need a faster way call cuTensorMapEncodeTiled themselves with the codes of ``driver_arguments``.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from .dtypes import data_type, tma_code
from .errors import HardwareError
from .swizzle_modes import swizzle_mode
from .tensor_map import MAP_BYTES, TensorMap
from .tensor_map_rules import INTERLEAVES, L2_PROMOTIONS, OOB_FILLS, is_hopper

# Reported publicly (Triton pull request 11011, NVIDIA release note): these drivers set bit 85 wrongly on Blackwell for
# allocations under 128 KiB that are not dense; clearing it is the stated workaround. Not re-run here.
_AFFECTED_DRIVERS = (13020, 13030)
_SMALL_ALLOCATION = 128 * 1024
_WRONG_BIT = 85


@dataclass(frozen=True)
class DriverArguments:
    """The numbers cuTensorMapEncodeTiled is called with; enumerators as their values (cuda.h 13.0)."""

    dtype: int
    rank: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: int
    swizzle: int
    l2_promotion: int
    oob_fill: int


def driver_arguments(tensor_map: TensorMap) -> DriverArguments:
    """The call's arguments. Raises HardwareError for a value that has no enumerator; checks no other rule.

    >>> driver_arguments(TensorMap("bf16", (64, 128), (256,), (64, 128), "128B")).swizzle
    3
    """
    swizzle = swizzle_mode(tensor_map.swizzle).tma_code
    if swizzle is None:
        raise HardwareError(f"swizzle {tensor_map.swizzle} has no CUtensorMapSwizzle")
    codes = []
    for field, choices in (("interleave", INTERLEAVES), ("l2_promotion", L2_PROMOTIONS), ("oob_fill", OOB_FILLS)):
        value = getattr(tensor_map, field)
        if value not in choices:
            raise HardwareError(f"{field}={value!r}: must be one of {', '.join(choices)}")
        codes.append(choices.index(value))
    return DriverArguments(
        tma_code(tensor_map.dtype),
        tensor_map.rank,
        tensor_map.shape,
        tensor_map.strides_bytes,
        tensor_map.box,
        tensor_map.steps,
        codes[0],
        swizzle,
        codes[1],
        codes[2],
    )


def needs_bit_85_cleared(tensor_map: TensorMap, allocation_bytes: int, driver_version: int) -> bool:
    """Whether the encoded map must be patched: Blackwell, an affected driver, a small allocation, a tensor with gaps.

    ``driver_version`` as cuDriverGetVersion gives it (13020).

    >>> needs_bit_85_cleared(TensorMap("f16", (64, 64), (192,), (64, 64), arch="sm_100a"), 12288, 13020)
    True
    """
    dense = data_type(tensor_map.dtype).bits * tensor_map.shape[0] // 8
    gaps = False
    for size, stride in zip(tensor_map.shape[1:], tensor_map.strides_bytes, strict=True):
        gaps |= stride != dense
        dense = stride * size
    small = allocation_bytes < _SMALL_ALLOCATION
    return not is_hopper(tensor_map.arch) and driver_version in _AFFECTED_DRIVERS and small and gaps


def patched(image: bytes) -> bytes:
    """The 128 bytes of a map with bit 85 cleared (bit 21 of the second 64-bit word).

    >>> patched(bytes(10) + b"\\x20" + bytes(117)) == bytes(128)
    True
    """
    if len(image) != MAP_BYTES:
        raise HardwareError(f"a tensor map has {MAP_BYTES} bytes, not {len(image)}")
    return (int.from_bytes(image, "little") & ~(1 << _WRONG_BIT)).to_bytes(MAP_BYTES, "little")


def encode_tensor_map(tensor_map: TensorMap, address: int, allocation_bytes: int | None = None) -> bytes:
    """The 128 bytes that the driver writes for the map at a global address.

    ``allocation_bytes``: size of the allocation, for the repair of affected drivers. Raises HardwareError with all
    problems, if cuda.bindings is not installed, and if the driver refuses all the same.
    """
    tensor_map.check(address)
    try:
        driver: Any = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise HardwareError(
            "encoding a tensor map needs the package cuda-bindings (pip install cuda-bindings)"
        ) from error
    arguments = driver_arguments(tensor_map)
    (status,) = driver.cuInit(0)
    if int(status) != 0:
        raise HardwareError(f"the CUDA driver does not start: {status.name}")

    def words(kind: Any, values: tuple[int, ...]) -> list[Any]:
        return [kind(value) for value in values]

    status, encoded = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType(arguments.dtype),
        arguments.rank,
        address,
        words(driver.cuuint64_t, arguments.shape),
        words(driver.cuuint64_t, arguments.strides_bytes),
        words(driver.cuuint32_t, arguments.box),
        words(driver.cuuint32_t, arguments.element_strides),
        driver.CUtensorMapInterleave(arguments.interleave),
        driver.CUtensorMapSwizzle(arguments.swizzle),
        driver.CUtensorMapL2promotion(arguments.l2_promotion),
        driver.CUtensorMapFloatOOBfill(arguments.oob_fill),
    )
    if int(status) != 0:
        raise HardwareError(f"cuTensorMapEncodeTiled refused {tensor_map}: {status.name}")
    image = b"".join(int(word).to_bytes(8, "little") for word in encoded.opaque)
    if allocation_bytes is not None:
        _, version = driver.cuDriverGetVersion()
        if needs_bit_85_cleared(tensor_map, allocation_bytes, int(version)):
            image = patched(image)
    return image
