"""Which byte of the tensor goes to which byte of shared memory when TMA copies a box, as index arrays.

A software tensor map: for a TensorMap, a coordinate and a shared-memory address it says, byte by byte, what
cp.async.bulk.tensor moves, what it fills, what it counts and when it faults. It moves nothing itself.

Source: measured on an H200, 291 transfers read back byte by byte (tests/data/h200/tma_landing.npz); PTX ISA 9.1
section 5.5 for the terms. The 4- and 6-bit types, which no H200 takes, follow PTX ISA 9.1 sections 5.5.1.1 (groups of 16
values, each padded to 16 bytes or not at all) and 9.7.9.27.1.1 (their restrictions); they were not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .dtypes import data_type
from .errors import HardwareError, whole
from .swizzle_modes import swizzle_mode
from .tensor_map_rules import CHUNK, COORDINATE_LIMIT, DESTINATION_ALIGNMENT

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .tensor_map import TensorMap

# Bit patterns of OOB_FILL_NAN_REQUEST_ZERO_FMA by element width, measured on an H200; the width 64 was not measured.
NAN_FILL = {16: 0x7FF7, 32: 0x7FF77FF7}
TF32_NAN = 0x7FFFE000  # what a NaN becomes in a load of TFLOAT32 (measured)


GROUP = 16  # values that the 4- and 6-bit types keep together (PTX 5.5.1.1)
PADDED_COORDINATE = (
    128  # elements; the first coordinate of a copy of padded values is a multiple of it (PTX 9.7.9.27.1.1)
)
_FORBIDDEN = "PTX ISA 9.7.9.27.1.1"


class TransferFault(HardwareError):  # noqa: N818
    """The copy would end in a device error; ``error`` is the CUDA runtime's name of it, or "undefined" where PTX forbids it."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(f"{message} ({_FORBIDDEN if error == 'undefined' else f'{error} on an H200'})")
        self.error = error


@dataclass(frozen=True)
class CopyPlan:
    """The bytes of one copy.

    ``smem``: shared-memory byte addresses; ``tensor``: the byte offset in the tensor that each is copied with, from
    the tensor's address, -1 where a load fills; both int64 of the same length. ``box_bytes``: what a load adds to
    its mbarrier.
    """

    smem: NDArray[np.int64]
    tensor: NDArray[np.int64]
    box_bytes: int


def check_transfer(m: TensorMap, coordinates: Sequence[int], smem_address: int, store: bool = False) -> None:
    """Raise TransferFault where the hardware would fault: a misaligned tile or coordinate, or a negative one in a
    store.

    >>> from stridewright.layout.hardware import TensorMap
    >>> check_transfer(TensorMap("bf16", (64, 8), (128,), (64, 8)), (3, 0), 0)
    Traceback (most recent call last):
      ...
    stridewright.layout.hardware.tensor_copy.TransferFault: coordinates[0]=3: 6 bytes must be a multiple of 16; nearest 0, 8 (cudaErrorIllegalInstruction on an H200)
    """
    if len(coordinates) != m.rank:
        raise HardwareError(f"{len(coordinates)} coordinates for a tensor map of rank {m.rank}")
    for i, value in enumerate(coordinates):
        if not -COORDINATE_LIMIT <= whole(f"coordinates[{i}]", value) < COORDINATE_LIMIT:
            raise HardwareError(f"coordinates[{i}]={value}: a coordinate is a signed 32-bit number")
    if whole("the shared address", smem_address) % DESTINATION_ALIGNMENT:
        message = f"shared address {smem_address}: must be a multiple of {DESTINATION_ALIGNMENT}"
        raise TransferFault("cudaErrorMisalignedAddress", message)
    dtype = data_type(m.dtype)
    bits = dtype.smem_bits
    if dtype.packed:
        _check_packed(m, coordinates, store)
    if m.interleave == "none" and coordinates[0] * bits % (8 * CHUNK):
        unit = 8 * CHUNK // bits
        below = coordinates[0] // unit * unit
        message = f"coordinates[0]={coordinates[0]}: {coordinates[0] * bits / 8:g} bytes must be a multiple of 16"
        raise TransferFault("cudaErrorIllegalInstruction", f"{message}; nearest {below}, {below + unit}")
    if store and min(coordinates) < 0:
        raise TransferFault(
            "cudaErrorIllegalInstruction", f"coordinates {tuple(coordinates)}: a store takes no negative one"
        )


def _check_packed(m: TensorMap, coordinates: Sequence[int], store: bool) -> None:
    dtype = data_type(m.dtype)
    if m.interleave != "none":
        raise TransferFault("undefined", f"{m.dtype} with interleave {m.interleave}: nothing says where its groups lie")
    if dtype.bits == dtype.smem_bits:
        return
    if coordinates[0] % PADDED_COORDINATE:
        below = coordinates[0] // PADDED_COORDINATE * PADDED_COORDINATE
        message = f"coordinates[0]={coordinates[0]}: must be a multiple of {PADDED_COORDINATE} for {m.dtype}"
        raise TransferFault("undefined", f"{message}; nearest {below}, {below + PADDED_COORDINATE}")
    if store and dtype.bits == 4:
        raise TransferFault("undefined", f"{dtype.tma} can be loaded, not stored: store packed values as e2m1")
    if not store and m.swizzle == "128B_atom_64B":
        raise TransferFault("undefined", f"swizzle {m.swizzle} is for stores of {m.dtype} alone; load with 128B")


def _outer(m: TensorMap, coordinates: Sequence[int]) -> tuple[Any, Any]:
    """For every box row in order: its byte offset in the tensor (without dimension 0), and whether it is inside."""
    import numpy as np

    offset = np.zeros(1, np.int64)
    inside = np.ones(1, bool)
    for i in range(1, m.rank):
        position = coordinates[i] + np.arange(m.counts[i], dtype=np.int64) * m.steps[i]
        valid = (position >= 0) & (position < m.shape[i])
        offset = (offset[None, :] + (position * m.strides_bytes[i - 1])[:, None]).ravel()
        inside = (inside[None, :] & valid[:, None]).ravel()
    return offset, inside


def copy_plan(m: TensorMap, coordinates: Sequence[int], smem_address: int = 0, store: bool = False) -> CopyPlan:
    """The bytes that one copy of the box at ``coordinates`` (elements, innermost first) moves.

    A load has every byte of the box, filled ones with tensor offset -1. A store has only what is written: whole
    16-byte chunks, so also bytes past the end of a row that ends inside one. Shared addresses are absolute (the swizzle
    looks at them). Of padded values only the bytes that hold some are there: the gaps are not initialised (PTX 5.5.1.1).
    Raises TransferFault where the hardware does, HardwareError for an invalid map and for stores of 6-bit values, which
    pack bits and move no bytes.

    >>> from stridewright.layout.hardware import TensorMap
    >>> plan = copy_plan(TensorMap("u8", (64, 8), (64,), (16, 2)), (48, 7))
    >>> plan.box_bytes, plan.smem.tolist()[15:17], plan.tensor.tolist()[15:17]
    (32, [15, 16], [511, -1])
    >>> plan = copy_plan(TensorMap("e2m1_padded", (128, 8), (64,), (128, 1), arch="sm_100a"), (0, 1))
    >>> plan.box_bytes, plan.smem.tolist()[7:9], plan.tensor.tolist()[7:9]
    (64, [7, 16], [71, 72])
    """
    import numpy as np

    m.check()
    check_transfer(m, coordinates, smem_address, store)
    dtype = data_type(m.dtype)
    if store and dtype.bits == 6:
        raise HardwareError(f"a store of {m.dtype} packs 6 of every 8 bits: no bytes are moved as they are")
    if dtype.packed:
        data, slot = GROUP * dtype.bits // 8, GROUP * dtype.smem_bits // 8
        along = np.arange(m.counts[0] // GROUP * data, dtype=np.int64)
        column = along // data * slot + along % data
        position = coordinates[0] * dtype.bits // 8 + along
        end = m.shape[0] * dtype.bits // 8
    else:
        unit = m.pixel_bytes or m.row_bytes // m.box[0]
        step = m.steps[0] if m.pixel_bytes else 1  # without an interleave the first element stride does nothing
        end = m.shape[0] * unit
        column = np.arange(m.row_bytes, dtype=np.int64)
        position = (coordinates[0] + column // unit * step) * unit + column % unit
    offset, inside = _outer(m, coordinates)
    if store:
        end = -(-end // CHUNK) * CHUNK
    valid = (position >= 0) & (position < end)
    tensor = offset[:, None] + position[None, :]
    smem = smem_address + (np.arange(offset.size, dtype=np.int64) * m.pitch)[:, None] + column[None, :]
    smem = np.asarray(swizzle_mode(m.swizzle).apply(smem), np.int64)
    good = inside[:, None] & valid[None, :]
    if store:
        return CopyPlan(smem[good], tensor[good], 0)
    return CopyPlan(smem.ravel(), np.where(good, tensor, -1).ravel(), m.box_bytes)


def fill_pattern(m: TensorMap) -> bytes:
    """The bytes that an out-of-bounds element of a load is filled with.

    Raises HardwareError for NaN fill of 64-bit elements, which was never measured.

    >>> from stridewright.layout.hardware import TensorMap
    >>> fill_pattern(TensorMap("bf16", (64,), (), (64,), oob_fill="nan")).hex()
    'f77f'
    """
    bits = data_type(m.dtype).smem_bits
    if m.oob_fill == "zero":
        return bytes(-(-bits // 8))
    if bits not in NAN_FILL:
        raise HardwareError(f"oob_fill=nan for {m.dtype}: the pattern of {bits}-bit elements was never measured")
    return NAN_FILL[bits].to_bytes(bits // 8, "little")


def loaded_values(m: TensorMap, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """What 32-bit words become in a load: tf32 rounds to 10 mantissa bits, ties to even; all others stay as they are.

    FLOAT32_FTZ and TFLOAT32_FTZ flush nothing (measured).

    >>> import numpy as np
    >>> from stridewright.layout.hardware import TensorMap
    >>> hex(loaded_values(TensorMap("tf32", (32,), (), (32,)), np.array([0x3F801001], np.uint32))[0])
    '0x3f802000'
    """
    import numpy as np

    if m.dtype not in ("tf32", "tf32_ftz"):
        return words
    wide = words.astype(np.uint64)
    # Half of the last kept place, less one, plus the last kept bit: round to nearest even on the magnitude.
    rounded = ((wide + 0xFFF + ((wide >> np.uint64(13)) & np.uint64(1))) & np.uint64(0xFFFFE000)).astype(np.uint32)
    is_nan = (words & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(is_nan, np.uint32(TF32_NAN), rounded)
