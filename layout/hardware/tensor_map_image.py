"""The 128 bytes of a tensor map on sm_90: written and read without a driver.

CUtensorMap is opaque by contract. What stands here was read off 108 maps that an H200's driver (580.159.04, CUDA 13.0)
encoded, all of which it reproduces; the field names are ours. Use it to explain a map met in memory or to build one where
there is no driver; a kernel that runs on hardware should get its maps from cuTensorMapEncodeTiled.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod

from .dtypes import TMA_ENUMERATORS, data_type
from .errors import HardwareError
from .swizzle_modes import swizzle_mode, swizzle_modes
from .tensor_map import MAP_BYTES, TensorMap
from .tensor_map_rules import INTERLEAVES, L2_PROMOTIONS, OOB_FILLS, is_hopper

TYPE_CODES = {
    "UINT8": (0, 0),
    "UINT16": (1, 0),
    "UINT32": (2, 0),
    "INT32": (3, 0),
    "UINT64": (4, 0),
    "INT64": (5, 0),
    "FLOAT16": (6, 0),
    "FLOAT32": (7, 0),
    "FLOAT32_FTZ": (8, 0),
    "FLOAT64": (9, 0),
    "BFLOAT16": (10, 0),
    "TFLOAT32": (7, 1),
    "TFLOAT32_FTZ": (8, 1),
}
"""The type's code in bits 7-10 of word 2, and whether bit 16 (round to tf32) is set."""
PACKED_CODES = {"16U4_ALIGN8B": 11, "16U4_ALIGN16B": 12, "16U6_ALIGN16B": 13}
"""The codes of the types that sm_100 adds, as the CuTe DSL 4.8.1 writes them for sm_100a; no driver was seen to. Only read here."""
_WORDS = MAP_BYTES // 4


def encode_image(tensor_map: TensorMap, address: int) -> bytes:
    """The 128 bytes an H200's driver writes for the map at a global address.

    Raises HardwareError with all problems for a map it would refuse, and for other architectures.

    >>> encode_image(TensorMap("u8", (1024, 96), (1024,), (16, 8), "128B"), 0x7F4000000000)[:12].hex()
    '00000000407f000010600000'
    """
    if not is_hopper(tensor_map.arch):
        raise HardwareError(f"arch {tensor_map.arch}: the bytes of a tensor map are known for sm_90 alone")
    tensor_map.check(address)
    rank, steps, box = tensor_map.rank, tensor_map.steps, tensor_map.box
    mode = swizzle_mode(tensor_map.swizzle)
    dtype = data_type(tensor_map.dtype)
    code, rounds = TYPE_CODES[str(dtype.tma)]
    words = [0] * _WORDS
    words[0], words[1] = address & 0xFFFFFFFF, address >> 32
    words[2] = (rank - 1) << 4 | code << 7 | INTERLEAVES.index(tensor_map.interleave) << 11
    words[2] |= int(mode.tma_code or 0) << 13 | OOB_FILLS.index(tensor_map.oob_fill) << 15 | rounds << 16
    words[2] |= L2_PROMOTIONS.index(tensor_map.l2_promotion) << 17
    for i, stride in enumerate(tensor_map.strides_bytes):
        words[3 + i] = stride >> 4 & 0xFFFFFFFF
        words[7] |= (stride >> 36) << 4 * i
    for i, size in enumerate(tensor_map.shape):
        words[8 + i] = size - 1
    words[13] = sum((step - 1) << 3 * i for i, step in enumerate(steps)) | (box[0] - 1) << 24
    words[14] = sum((extent - 1) << 8 * i for i, extent in enumerate(box[1:]))
    # The size that the driver limits to 228 KiB, and the repeat of the swizzle pattern, both in bytes.
    words[16] = prod(extent // step for extent, step in zip(box, steps, strict=True)) * dtype.smem_bits // 8
    words[18] = mode.repeat
    return struct.pack(f"<{_WORDS}I", *words)


def decode_image(image: bytes) -> tuple[TensorMap, int]:
    """(the map, the global address) of 128 bytes that an sm_90 driver wrote.

    A dtype comes back as the first of those that share an enumerator (u8 for fp8). Raises HardwareError where a bit is
    set that no known map has.

    >>> m = TensorMap("bf16", (4096, 7), (8192,), (64, 128), "128B", l2_promotion="128B")
    >>> decode_image(encode_image(m, 4096)) == (TensorMap(**{**vars(m), "element_strides": (1, 1)}), 4096)
    True
    """
    if not isinstance(image, bytes | bytearray) or len(image) != MAP_BYTES:
        given = len(image) if isinstance(image, bytes | bytearray) else f"{image!r:.60}"
        raise HardwareError(f"a tensor map has {MAP_BYTES} bytes, not {given}")
    tensor_map, address = read_words(struct.unpack(f"<{_WORDS}I", image))
    if tensor_map.problems(address) or encode_image(tensor_map, address) != image:
        raise HardwareError("the map has bits set that no known sm_90 map has, or was never accepted by a driver")
    return tensor_map, address


def read_words(words: Sequence[int]) -> tuple[TensorMap, int]:
    """(the map, the global address) that the fields of a map's 32-bit words say; nothing else about it is checked.

    A map of 4- or 6-bit values, which only sm_100 has, is one for sm_100a.

    >>> read_words(struct.unpack("<32I", bytes(128)))[0].box
    (1,)
    """
    head = words[2]
    rank = (head >> 4 & 7) + 1
    kinds = {value: name for name, value in TYPE_CODES.items()}
    packed = {code: name for name, code in PACKED_CODES.items()}.get(head >> 7 & 15)
    kind = kinds.get((head >> 7 & 15, head >> 16 & 1), packed)
    interleave, swizzle = head >> 11 & 3, head >> 13 & 3
    if kind is None or rank > 5 or interleave >= len(INTERLEAVES):
        raise HardwareError(f"word 2 of the map is {head:#010x}: type, rank or interleave is not defined")
    assert kind in TMA_ENUMERATORS
    tensor_map = TensorMap(
        kind,
        tuple(words[8 + i] + 1 for i in range(rank)),
        tuple(words[3 + i] << 4 | (words[7] >> 4 * i & 15) << 36 for i in range(rank - 1)),
        ((words[13] >> 24) + 1, *((words[14] >> 8 * i & 255) + 1 for i in range(rank - 1))),
        swizzle_modes()[swizzle].name,
        tuple((words[13] >> 3 * i & 7) + 1 for i in range(rank)),
        INTERLEAVES[interleave],
        L2_PROMOTIONS[head >> 17 & 3],
        OOB_FILLS[head >> 15 & 1],
        arch="sm_100a" if kind == packed else "sm_90a",
    )
    return tensor_map, words[0] | words[1] << 32
