"""tensormap.replace: a field of a tensor map's 128 bytes set on the device, and reading a map that was made so.

Values are those of PTX ISA 9.7.9.28 (tensormap.replace): sizes as they are, strides in bytes, the rank less one, enumerations by its table.
128 zero bytes are a valid start on sm_90a (CUDA programming guide, "Encoding a tensor map on device").
"""

from __future__ import annotations

import struct

from .errors import HardwareError
from .tensor_map import MAP_BYTES, TensorMap
from .tensor_map_image import TYPE_CODES, read_words

ELEMENT_TYPES = (
    "UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64", "FLOAT16", "FLOAT32", "FLOAT32_FTZ", "FLOAT64", "BFLOAT16", "TFLOAT32",
    "TFLOAT32_FTZ",
)  # fmt: skip
"""The `.elemtype` numbers, up to those that sm_90 has."""

ORDINALS = {"box_dim": 5, "global_dim": 5, "global_stride": 4, "element_stride": 5}
"""Fields with one value a dimension, and how many."""

_ENUMERATIONS = {"interleave_layout": (11, 3), "swizzle_mode": (13, 4), "fill_mode": (15, 2)}
"""First bit in word 2, and the number of values that sm_90 has."""

FIELDS = frozenset({"global_address", "rank", "elemtype", *ORDINALS, *_ENUMERATIONS})


def replaced(image: bytes, field: str, value: int, ordinal: int = 0) -> bytes:
    """The 128 bytes with one field set. Raises HardwareError for a field, ordinal or value that sm_90 has not.

    >>> image = replaced(bytes(128), "global_dim", 1024, ordinal=1)
    >>> image == replaced(image, "global_dim", 1024, ordinal=1), len(image)
    (True, 128)
    """
    if len(image) != MAP_BYTES:
        raise HardwareError(f"a tensor map has {MAP_BYTES} bytes, not {len(image)}")
    if field not in FIELDS:
        raise HardwareError(f"field {field!r}: must be one of {', '.join(sorted(FIELDS))}")
    if not 0 <= ordinal < ORDINALS.get(field, 1):
        raise HardwareError(f"{field} {ordinal}: the ordinal must be below {ORDINALS.get(field, 1)}")
    words = list(struct.unpack("<32I", image))
    if field == "global_address":
        _within(field, value, 0, (1 << 64) - 1)
        words[0], words[1] = value & 0xFFFF_FFFF, value >> 32
    elif field == "global_dim":
        _within(field, value, 1, 1 << 32)
        words[8 + ordinal] = value - 1
    elif field == "global_stride":
        _within(field, value, 0, (1 << 40) - 16)
        if value % 16:
            raise HardwareError(f"global_stride={value}: must be a multiple of 16 bytes")
        words[3 + ordinal] = value >> 4 & 0xFFFF_FFFF
        _put(words, 7, 4 * ordinal, 4, value >> 36)
    elif field == "box_dim":
        _within(field, value, 1, 256)
        _put(words, *((13, 24) if ordinal == 0 else (14, 8 * (ordinal - 1))), 8, value - 1)
    elif field == "element_stride":
        _within(field, value, 1, 8)
        _put(words, 13, 3 * ordinal, 3, value - 1)
    elif field == "rank":
        _within(field, value, 0, 4)
        _put(words, 2, 4, 3, value)
    elif field == "elemtype":
        _within(field, value, 0, len(ELEMENT_TYPES) - 1)
        code, rounds = TYPE_CODES[ELEMENT_TYPES[value]]
        _put(words, 2, 7, 4, code)
        _put(words, 2, 16, 1, rounds)
    else:
        first, count = _ENUMERATIONS[field]
        _within(field, value, 0, count - 1)
        _put(words, 2, first, (count - 1).bit_length(), value)
    return struct.pack("<32I", *words)


def read_image(image: bytes) -> tuple[TensorMap, int]:
    """(the map, its global address) of 128 bytes that were made by replacing fields; what a driver would refuse raises HardwareError.

    >>> image = bytes(128)
    >>> for field, value in (("global_address", 4096), ("box_dim", 64), ("global_dim", 100)):
    ...     image = replaced(image, field, value)
    >>> tensor_map, address = read_image(image)
    >>> tensor_map.shape, tensor_map.box, address
    ((100,), (64,), 4096)
    """
    if len(image) != MAP_BYTES:
        raise HardwareError(f"a tensor map has {MAP_BYTES} bytes, not {len(image)}")
    tensor_map, address = read_words(struct.unpack("<32I", image))
    return tensor_map.check(address), address


def _put(words: list[int], word: int, first: int, bits: int, value: int) -> None:
    mask = (1 << bits) - 1 << first
    words[word] = words[word] & ~mask | value << first


def _within(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise HardwareError(f"{field}={value}: must be {low} to {high}")
