"""The shared-memory swizzles that TMA, wgmma and tcgen05 share, as one table.

Each is an XOR on the ABSOLUTE shared-memory byte address: ``address ^= ((address >> shift) & mask) << to``, which is
Swizzle(bits, base, shift) of the algebra in units of bytes. This module knows no layouts and no instructions.

Sources: PTX ISA 9.1 section 5.5.7 (swizzling modes) and 9.7.15.5.1; cuda.h 13.0 (CUtensorMapSwizzle); measured on an
H200 for none, 32B, 64B and 128B (which byte lands where, which byte wgmma reads).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from .errors import HardwareError, nearest

LINE = 128  # bytes: every swizzle is decided by the number of an address's 128-byte line

IntOrArray = TypeVar("IntOrArray", int, Any)


@dataclass(frozen=True)
class SwizzleMode:
    """One swizzle: Swizzle(bits, base, shift) on byte addresses.

    ``span`` is the width in bytes of the row it acts on (the pitch of a box row in shared memory, 0 for none),
    ``repeat`` the bytes after which the pattern starts again, ``tma_code`` the value of CUtensorMapSwizzle (None
    where TMA has no such mode), ``wgmma_code`` the value of descriptor bits 62-63 on sm_90a and ``tcgen05_code`` of
    bits 61-63 on sm_100a (None where the unit has no such mode). ``flip_8_bytes``: the 8-byte halves of every
    16 bytes also change places on alternate 128-byte lines. ``measured`` says whether silicon was seen to do it.
    """

    name: str
    bits: int
    base: int
    shift: int
    span: int
    tma_code: int | None
    wgmma_code: int | None
    tcgen05_code: int | None
    flip_8_bytes: bool = False
    measured: bool = False

    @property
    def repeat(self) -> int:
        """Bytes after which the pattern repeats.

        >>> [swizzle_mode(name).repeat for name in ("none", "32B", "64B", "128B")]
        [16, 256, 512, 1024]
        """
        return 1 << (self.base + self.shift + self.bits) if self.bits else 16

    def apply(self, address: IntOrArray) -> IntOrArray:
        """The address (bytes; an int or an integer ndarray) at which the byte of an unswizzled address really lies.

        >>> hex(swizzle_mode("128B").apply(0x380))
        '0x3f0'
        """
        if self.bits == 0:
            return address
        line = address >> (self.base + self.shift)
        swizzled = address ^ ((line & ((1 << self.bits) - 1)) << self.base)
        if self.flip_8_bytes:
            # cuda.h: "additionally swap lower 8B with upper 8B within each 16B for every alternate row".
            swizzled = swizzled ^ ((line & 1) << 3)
        return swizzled

    def element_parameters(self, element_bits: int) -> tuple[int, int, int]:
        """(bits, base, shift) of the same function on element indices, for Swizzle(*...).

        Raises HardwareError where an element is wider than the unit that is moved.

        >>> swizzle_mode("128B").element_parameters(16)
        (3, 3, 3)
        """
        base = self.base
        if self.flip_8_bytes:
            raise HardwareError(f"swizzle {self.name} also swaps 8-byte halves: it is no single Swizzle(b, m, s)")
        if element_bits >= 8:
            base -= (element_bits // 8).bit_length() - 1
        elif element_bits in (4, 2, 1):
            base += (8 // element_bits).bit_length() - 1
        else:
            raise HardwareError(f"element of {element_bits} bits: give the bits it takes in shared memory (8 for 6)")
        if base < 0:
            raise HardwareError(
                f"element of {element_bits} bits is wider than the {1 << self.base} bytes a swizzle moves"
            )
        return (self.bits, base, self.shift) if self.bits else (0, base, self.shift)


# tcgen05 codes: PTX 9.7.16.4.1. "128B_atom_32B" is called 128B_BASE32B by CuTe and is for 32-bit MN-major operands.
_MODES = (
    SwizzleMode("none", 0, 4, 3, 0, 0, 0, 0, measured=True),
    SwizzleMode("32B", 1, 4, 3, 32, 1, 3, 6, measured=True),
    SwizzleMode("64B", 2, 4, 3, 64, 2, 2, 4, measured=True),
    SwizzleMode("128B", 3, 4, 3, 128, 3, 1, 2, measured=True),
    SwizzleMode("128B_atom_32B", 2, 5, 2, 128, 4, None, 1),
    SwizzleMode("128B_atom_32B_flip_8B", 2, 5, 2, 128, 5, None, None, flip_8_bytes=True),
    SwizzleMode("128B_atom_64B", 1, 6, 1, 128, 6, None, None),
)
_BY_NAME = {mode.name: mode for mode in _MODES} | {mode.name.upper(): mode for mode in _MODES}


def swizzle_modes() -> tuple[SwizzleMode, ...]:
    """All modes, in the order of CUtensorMapSwizzle.

    >>> [mode.name for mode in swizzle_modes()][:4]
    ['none', '32B', '64B', '128B']
    """
    return _MODES


def known_swizzle(name: object) -> bool:
    """Whether ``swizzle_mode`` would accept the name ("128B", or the enumerator "128B_ATOM_32B").

    >>> known_swizzle("128B"), known_swizzle("96B")
    (True, False)
    """
    return isinstance(name, str) and name in _BY_NAME


def swizzle_mode(name: str) -> SwizzleMode:
    """The mode of that name. Raises HardwareError naming the nearest one.

    >>> swizzle_mode("64B").span
    64
    """
    if not known_swizzle(name):
        raise HardwareError(
            f"swizzle {name!r} is not known: one of {', '.join(m.name for m in _MODES)}; "
            f"nearest {nearest(str(name), _BY_NAME)}"
        )
    return _BY_NAME[name]


def mode_of_parameters(bits: int, base: int, shift: int, element_bits: int) -> SwizzleMode:
    """The mode that Swizzle(bits, base, shift) on elements of that many bits is.

    Raises HardwareError with the modes there are.

    >>> mode_of_parameters(3, 3, 3, 16).name
    '128B'
    """
    if bits == 0:
        return _MODES[0]
    for mode in _MODES:
        if mode.flip_8_bytes or mode.bits == 0:
            continue
        try:
            parameters = mode.element_parameters(element_bits)
        except HardwareError:
            continue
        if parameters == (bits, base, shift):
            return mode
    choices = ", ".join(
        f"{mode.name} = Swizzle{mode.element_parameters(element_bits)}"
        for mode in _MODES
        if not mode.flip_8_bytes and mode.bits and mode.base >= max(0, (element_bits // 8).bit_length() - 1)
    )
    raise HardwareError(
        f"Swizzle({bits}, {base}, {shift}) on {element_bits}-bit elements is no hardware swizzle: {choices}"
    )
