"""The 64-bit shared-memory matrix descriptors of wgmma (sm_90a) and tcgen05 (sm_100a), and what they read.

Encode, decode, explain, and the byte address of every operand element that a descriptor names. Recognising a layout as
one of the canonical forms is in ``canonical``.

Sources: PTX ISA 9.1 sections 9.7.15.5.1 (wgmma) and 9.7.16.4.1 (tcgen05); CuTe mma_sm90_desc.hpp and
mma_sm100_desc.hpp; 1,230 descriptors run through wgmma on an H200 (tests/data/h200/wgmma_descriptors.npz).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .dtypes import data_type
from .errors import HardwareError, whole
from .swizzle_modes import SwizzleMode, swizzle_mode, swizzle_modes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FIELD_LIMIT = 1 << 18  # start, LBO and SBO are 18-bit byte numbers without their low four bits
UNIT = 16  # bytes that a descriptor field counts in
OPERAND_K_BYTES = 32  # bytes of K that one wgmma or tcgen05.mma reads of a row (PTX 9.7.15.2, table 39 of 9.7.16)
CORE_ROWS = 8  # rows of a core matrix, and of a swizzle atom
# Bits that wgmma was seen not to look at, tried one at a time on an H200.
HOPPER_IGNORED = sum(1 << bit for bit in (14, 15, 30, 31, 46, 47, 48, *range(52, 62)))
BLACKWELL_VERSION = 1  # bits 46-48, fixed 0b001 (PTX 9.7.16.4.1)
MAJORS = ("k", "mn")
_WGMMA_ARCHITECTURES = ("sm_90", "sm_90a")
_TCGEN05_ARCHITECTURES = ("sm_100", "sm_101", "sm_103", "sm_110")  # sm_101 is sm_110's name before CUDA 13


def is_blackwell(arch: str) -> bool:
    """Whether the architecture has tcgen05. Raises HardwareError for one that has neither it nor wgmma.

    >>> is_blackwell("sm_90a"), is_blackwell("sm_100a")
    (False, True)
    """
    if isinstance(arch, str) and arch in _WGMMA_ARCHITECTURES:
        return False
    if isinstance(arch, str) and arch.rstrip("af") in _TCGEN05_ARCHITECTURES:
        return True
    raise HardwareError(f"arch {arch!r} has no matrix descriptors: sm_90a (wgmma), sm_100a, sm_103a, sm_110a (tcgen05)")


@dataclass(frozen=True)
class MatrixDescriptor:
    """A matrix descriptor's fields. ``start``, ``leading`` (LBO) and ``stride`` (SBO) are in bytes, multiples of 16.

    ``swizzle`` is the name of a mode; ``base_offset`` 0..7 is subtracted from the 128-byte line number before the XOR;
    ``absolute_leading`` (sm_103a, bit 52) says that LBO is an address; ``ignored`` holds bits that hardware does not
    look at (decoded from a word, never encoded anew).
    """

    arch: str
    start: int
    leading: int
    stride: int
    swizzle: str
    base_offset: int = 0
    absolute_leading: bool = False
    ignored: int = 0

    @property
    def mode(self) -> SwizzleMode:
        """The swizzle."""
        return swizzle_mode(self.swizzle)

    @property
    def lbo(self) -> int:
        """``leading`` by its PTX name: the leading dimension byte offset."""
        return self.leading

    @property
    def sbo(self) -> int:
        """``stride`` by its PTX name: the stride dimension byte offset."""
        return self.stride

    def encode(self) -> int:
        """The 64-bit word. Raises HardwareError for a field that does not fit, naming the nearest that does.

        >>> hex(MatrixDescriptor("sm_90a", 0, 16, 1024, "128B").encode())
        '0x4000004000010000'
        >>> hex(MatrixDescriptor("sm_100a", 0, 16, 1024, "128B").encode())
        '0x4000404000010000'
        """
        blackwell = is_blackwell(self.arch)
        for name in ("start", "leading", "stride"):
            value = whole(name, getattr(self, name))
            if value % UNIT or not 0 <= value < FIELD_LIMIT:
                clamped = min(max(value // UNIT * UNIT, 0), FIELD_LIMIT - UNIT)
                raise HardwareError(
                    f"{name}={value}: must be a multiple of 16 in 0..{FIELD_LIMIT - UNIT} (18-bit descriptor field); "
                    f"nearest {clamped}"
                )
        if not 0 <= whole("base_offset", self.base_offset) < 8:
            raise HardwareError(f"base_offset={self.base_offset}: must be in 0..7 (bits 49-51)")
        if self.absolute_leading and not self.arch.startswith("sm_103"):
            raise HardwareError(f"absolute_leading (bit 52) needs sm_103a, not {self.arch} (PTX 9.7.16.4.1)")
        code = self.mode.tcgen05_code if blackwell else self.mode.wgmma_code
        if code is None:
            known = [m.name for m in swizzle_modes() if (m.tcgen05_code if blackwell else m.wgmma_code) is not None]
            raise HardwareError(f"swizzle {self.swizzle}: {self.arch} matrix descriptors have {', '.join(known)}")
        word = (self.start >> 4) | (self.leading >> 4) << 16 | (self.stride >> 4) << 32 | self.base_offset << 49
        if blackwell:
            return word | BLACKWELL_VERSION << 46 | int(self.absolute_leading) << 52 | code << 61
        return word | code << 62

    def explain(self) -> str:
        """One line a field, with bits and bytes.

        >>> print(decode_matrix_descriptor(0x4000004000010000, "sm_90a").explain())
        bits 0-13   start        0 B
        bits 16-29  leading      16 B (not looked at in K-major with a swizzle)
        bits 32-45  stride       1024 B
        bits 49-51  base offset  0
        bits 62-63  swizzle      128B: bits 7-9 of the address XOR into bits 4-6
        """
        mode = self.mode
        top = mode.base + mode.shift
        if mode.bits == 0:
            swizzle = "none"
        else:
            ends = (f"{top}-{top + mode.bits - 1}", f"{mode.base}-{mode.base + mode.bits - 1}")
            plural = ("bits " + ends[0], "bits " + ends[1]) if mode.bits > 1 else (f"bit {top}", f"bit {mode.base}")
            swizzle = f"{mode.name}: {plural[0]} of the address XOR into {plural[1]}"
        note = " (not looked at in K-major with a swizzle)" if mode.bits else ""
        if self.absolute_leading:
            note = " (an absolute address)"
        lines = [
            f"bits 0-13   start        {self.start} B",
            f"bits 16-29  leading      {self.leading} B{note}",
            f"bits 32-45  stride       {self.stride} B",
            f"bits 49-51  base offset  {self.base_offset}",
            f"bits {'61-63' if is_blackwell(self.arch) else '62-63'}  swizzle      {swizzle}",
        ]
        if self.ignored:
            lines.append(f"ignored bits 0x{self.ignored:016x}")
        return "\n".join(lines)

    def advanced(self, units: int) -> MatrixDescriptor:
        """The descriptor with ``units`` of 16 bytes added to its start, as kernels step along K."""
        start = (self.start + units * UNIT) % FIELD_LIMIT
        return MatrixDescriptor(
            self.arch, start, self.leading, self.stride, self.swizzle, self.base_offset, self.absolute_leading
        )

    def addresses(self, dtype: str, major: str, rows: int, k: int | None = None) -> NDArray[np.int64]:
        """The shared-memory byte address of every operand element, shape (rows, k): what the matrix unit reads.

        Rows are M of A or N of B. ``k`` defaults to one instruction's (32 bytes). Of 4-bit elements two share a byte.
        Addresses count from where ``start`` does. Measured for sm_90a; for sm_100a checked against CuTe's layouts.

        >>> MatrixDescriptor("sm_90a", 0, 16, 1024, "128B").addresses("bf16", "k", 64)[1, :3].tolist()
        [144, 146, 148]
        """
        import numpy as np

        bits = data_type(dtype).smem_bits
        k = OPERAND_K_BYTES * 8 // bits if k is None else k
        row_index, k_index = np.arange(rows, dtype=np.int64)[:, None], np.arange(k, dtype=np.int64)[None, :]
        address = self.start + self._offsets(bits, major, row_index, k_index)
        mode = self.mode
        if mode.bits == 0:
            return address
        line = (address >> (mode.base + mode.shift)) - self.base_offset
        return address ^ ((line & ((1 << mode.bits) - 1)) << mode.base)

    def _offsets(self, bits: int, major: str, row: NDArray[np.int64], k: NDArray[np.int64]) -> NDArray[np.int64]:
        """Byte offsets from the start before the swizzle, by the table of PTX 9.7.15.5.1 as measured."""
        if major not in MAJORS:
            raise HardwareError(f"major {major!r}: must be 'k' or 'mn'")
        if self.absolute_leading:
            raise HardwareError("a descriptor whose LBO is an absolute address is not modelled: nothing is known of it")
        chunk = UNIT * 8 // bits
        span, width = self.mode.span, self.mode.span * 8 // bits
        group = 4 if self.swizzle == "128B_atom_32B" else CORE_ROWS
        if major == "k":
            if self.mode.bits == 0:
                return row % 8 * UNIT + row // 8 * self.stride + k // chunk * self.leading + k % chunk * bits // 8
            if self.swizzle == "128B_atom_32B":
                raise HardwareError("swizzle 128B_atom_32B is for MN-major 32-bit operands only (PTX 9.7.16.4.1)")
            return row % 8 * span + row // 8 * self.stride + k * bits // 8
        if self.mode.bits == 0:
            # Without a swizzle LBO and SBO change places: SBO leads to the next 16 bytes of M or N.
            return k % 8 * UNIT + k // 8 * self.leading + row // chunk * self.stride + row % chunk * bits // 8
        return k % group * span + k // group * self.stride + row // width * self.leading + row % width * bits // 8


def decode_matrix_descriptor(word: int, arch: str = "sm_90a") -> MatrixDescriptor:
    """The fields of a 64-bit descriptor. Raises HardwareError for a value the architecture does not define.

    Bits that sm_90a ignores come back in ``ignored``; on sm_100a they must hold what PTX fixes.

    >>> decode_matrix_descriptor(0x4000004000010000).stride
    1024
    >>> decode_matrix_descriptor(0x4000404000010000, "sm_100a").swizzle
    '128B'
    """
    word = whole("descriptor", word)
    if not 0 <= word < 1 << 64:
        raise HardwareError(f"descriptor {word:#x}: must be a 64-bit word")
    blackwell = is_blackwell(arch)
    start, leading, stride = ((word >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
    base_offset = word >> 49 & 7
    code = word >> 61 if blackwell else word >> 62
    by_code = {(m.tcgen05_code if blackwell else m.wgmma_code): m.name for m in swizzle_modes()}
    if code not in by_code:
        raise HardwareError(
            f"descriptor {word:#018x}: swizzle code {code} in bits 61-63 is not defined (0, 1, 2, 4, 6)"
        )
    if not blackwell:
        return MatrixDescriptor(arch, start, leading, stride, by_code[code], base_offset, ignored=word & HOPPER_IGNORED)
    if (version := word >> 46 & 7) != BLACKWELL_VERSION:
        raise HardwareError(f"descriptor {word:#018x}: bits 46-48 are {version}, tcgen05 needs 1 (PTX 9.7.16.4.1)")
    reserved = word & (0b11 << 14 | 0b11 << 30 | 0xFF << 53)
    if reserved:
        raise HardwareError(f"descriptor {word:#018x}: reserved bits {reserved:#x} must be 0 (PTX 9.7.16.4.1)")
    absolute = bool(word >> 52 & 1)
    if absolute and not arch.startswith("sm_103"):
        raise HardwareError(f"descriptor {word:#018x}: bit 52 (absolute LBO) needs sm_103a, not {arch}")
    return MatrixDescriptor(arch, start, leading, stride, by_code[code], base_offset, absolute)
