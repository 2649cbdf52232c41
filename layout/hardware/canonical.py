"""From a shared-memory layout to the matrix descriptor that reads it: canonical forms, recognised and built.

A tile is a layout from (row, k), rows being M of A or N of B, to element offsets, plain or swizzled. The descriptor is
that of its first instruction along K (32 bytes); ``k_advance`` says what the following ones add to the start. A
tile that is no canonical form raises with the nearest one; nothing is approximated.

Sources: PTX ISA 9.1 sections 9.7.15.5.1 and 9.7.16.4.1; the canonical forms of CuTe's mma_sm90_desc.hpp and
mma_sm100_desc.hpp (T = 16 bytes of elements): K-major ((8,m),(T,2k)), MN-major ((T,w,m),(8,k)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..algebra import size
from ..core import Layout
from ..errors import LayoutError
from ..operations import compose
from ..products import tile_to_shape
from ..swizzle import Swizzle, SwizzledLayout
from .descriptors import CORE_ROWS, FIELD_LIMIT, MAJORS, OPERAND_K_BYTES, UNIT, MatrixDescriptor, is_blackwell
from .dtypes import data_type, names
from .errors import HardwareError, nearest_multiples, whole
from .swizzle_modes import LINE, SwizzleMode, mode_of_parameters, swizzle_mode, swizzle_modes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Tile = Layout | SwizzledLayout

# PTX ISA 9.1, table 39 of 9.7.16: what tcgen05.mma takes from shared memory; f8f6f4 reads 4- and 6-bit values padded to
# 8.
_TCGEN05_TYPES = ("bf16", "f16", "tf32", "e4m3", "e5m2", "s8", "u8", "e2m1", "e2m1_padded", "e2m3", "e3m2")


@dataclass(frozen=True)
class CanonicalOperand:
    """A recognised tile: ``descriptor`` of its first instruction, ``major``, ``rows``, and ``k_advance``, a Layout from
    the number of the instruction along K to what is added to the descriptor's start field, in units of 16 bytes.
    """

    descriptor: MatrixDescriptor
    dtype: str
    major: str
    rows: int
    k_advance: Layout

    def explain(self) -> str:
        """The form, the fields and the k-advance in words."""
        lines = [
            f"{self.major.upper()}-major {self.dtype}, {self.rows} rows, swizzle {self.descriptor.swizzle}:"
            f" descriptor 0x{self.descriptor.encode():016x}",
            self.descriptor.explain(),
            f"k-advance    {self.k_advance} (units of 16 B a {OPERAND_K_BYTES}-byte step)",
        ]
        return "\n".join(lines)


def smem_atom(swizzle: str, major: str, dtype: str) -> Tile:
    """The smallest canonical tile of a mode: (rows, k) -> element offset, 8 rows (or k) of one swizzle span.

    >>> print(smem_atom("128B", "k", "bf16"), smem_atom("none", "mn", "bf16"))
    S<3,3,3> o (8,64):(64,1) (8,8):(1,8)
    """
    if major not in MAJORS:
        raise HardwareError(f"major {major!r}: must be 'k' or 'mn'")
    mode, bits = swizzle_mode(swizzle), data_type(dtype).smem_bits
    if mode.tcgen05_code is None:
        raise HardwareError(f"swizzle {swizzle}: no matrix unit reads it; TMA only")
    width = (mode.span or UNIT) * 8 // bits
    group = 4 if mode.name == "128B_atom_32B" else CORE_ROWS
    if major == "k" and group == 4:
        raise HardwareError("swizzle 128B_atom_32B is for MN-major 32-bit operands only (PTX 9.7.16.4.1)")
    plain = Layout((CORE_ROWS, width), (width, 1)) if major == "k" else Layout((width, group), (1, width))
    if mode.bits == 0:
        return plain
    swizzled: SwizzledLayout = compose(Swizzle(*mode.element_parameters(bits)), plain)
    return swizzled


def smem_tile(swizzle: str, major: str, dtype: str, rows: int, k: int, order: tuple[int, int] = (0, 1)) -> Tile:
    """A canonical tile of ``rows`` x ``k`` elements: atoms in ``order``, (0, 1) rows first, (1, 0) k first.

    >>> print(smem_tile("128B", "k", "bf16", 128, 64))
    S<3,3,3> o ((8,16),(64,1)):((64,512),(1,0))
    """
    atom = smem_atom(swizzle, major, dtype)
    shape = atom.shape
    for name, extent, unit in (("rows", rows, shape[0]), ("k", k, shape[1])):
        if whole(name, extent) < 1 or extent % unit:
            raise HardwareError(
                f"{name}={extent}: a {major}-major {swizzle} atom of {dtype} is {shape[0]} x {shape[1]};"
                f" {nearest_multiples(extent, unit)}"
            )
    tile: Tile = tile_to_shape(atom, (rows, k), order=order)
    return tile


def _fields(inner: Layout, mode: SwizzleMode, major: str, bits: int, rows: int, k: int) -> tuple[int, int]:
    """(LBO, SBO) in bytes that the layout would have if it were canonical; 0 where an operand has no second one."""

    def at(row: int, column: int) -> int:
        return int(inner(row, column) - inner(0, 0)) * bits // 8

    chunk, width = UNIT * 8 // bits, mode.span * 8 // bits
    group = 4 if mode.name == "128B_atom_32B" else CORE_ROWS
    if major == "k":
        stride = at(CORE_ROWS, 0) if rows > CORE_ROWS else 0
        # With a swizzle LBO is not looked at; CuTe writes 1 (mma_sm90_desc.hpp), and so do we.
        return (at(0, chunk) if mode.bits == 0 else UNIT), stride
    if mode.bits == 0:
        return (at(0, CORE_ROWS) if k > CORE_ROWS else 0), (at(chunk, 0) if rows > chunk else 0)
    return (at(width, 0) if rows > width else 0), (at(0, group) if k > group else 0)


def _byte_offsets(inner: Layout, bits: int, rows: int, k: int, first: int = 0) -> NDArray[np.int64]:
    """(rows, k) byte offsets from the layout's origin, k counted from ``first``; exact also for 4-bit elements."""
    import numpy as np

    indices = np.arange(rows * first, rows * (first + k), dtype=np.int64)
    elements = np.asarray(inner(indices), np.int64).reshape(k, rows).T
    return elements * bits // 8


def _mismatch(inner: Layout, mode: SwizzleMode, major: str, bits: int, rows: int, k: int) -> tuple[int, str]:
    """How many elements are not where the mode's canonical form has them, and the first of them in words."""
    import numpy as np

    if (major == "k" and mode.name == "128B_atom_32B") or mode.tcgen05_code is None:
        return rows * k + 1, ""
    leading, stride = _fields(inner, mode, major, bits, rows, k)
    form = MatrixDescriptor("sm_100a", 0, leading, stride, mode.name)
    row, column = np.arange(rows, dtype=np.int64)[:, None], np.arange(k, dtype=np.int64)[None, :]
    wanted = form._offsets(bits, major, row, column)
    seen = _byte_offsets(inner, bits, rows, k)
    seen = seen - seen[0, 0]
    wrong = np.argwhere(wanted != seen)
    if not len(wrong):
        return 0, ""
    r, c = (int(x) for x in wrong[0])
    return len(wrong), f"element (row {r}, k {c}) is at byte {int(seen[r, c])}, that form has it at {int(wanted[r, c])}"


def _check_type(dtype: str, arch: str, major: str, mode: SwizzleMode) -> None:
    kind = data_type(dtype)
    if major not in MAJORS:
        raise HardwareError(f"major {major!r}: must be 'k' or 'mn'")
    if not is_blackwell(arch):
        if kind.wgmma_k == 0:
            allowed = [name for name in names() if data_type(name).wgmma_k]
            raise HardwareError(f"dtype {dtype}: wgmma reads {', '.join(allowed)}")
        if major == "mn" and not kind.wgmma_mn_major:
            raise HardwareError(
                f"dtype {dtype}, major mn: wgmma reads only bf16 and f16 MN-major (PTX 9.7.15.5.1); use K-major"
            )
        return
    if dtype not in _TCGEN05_TYPES:
        raise HardwareError(f"dtype {dtype}: tcgen05 reads {', '.join(_TCGEN05_TYPES)}")
    if major == "mn":
        if kind.bits < 8:
            raise HardwareError(
                f"dtype {dtype}, major mn: tcgen05 reads 4- and 6-bit types K-major only (PTX 9.7.16.4)"
            )
        if kind.bits == 32 and mode.name != "128B_atom_32B":
            raise HardwareError(
                f"dtype {dtype}, major mn: needs swizzle 128B_atom_32B, not {mode.name} (PTX 9.7.16.4.1)"
            )


def recognise(layout: Tile, dtype: str, arch: str = "sm_90a", major: str = "k", address: int = 0) -> CanonicalOperand:
    """The canonical operand that a tile in shared memory is.

    ``layout``: (rows, k) -> element offset; ``address``: the byte at which offset 0 lies, as the descriptor counts it
    (a shared-memory window address). Raises HardwareError naming the nearest canonical form and the first element that
    is elsewhere, or the field that does not fit.

    >>> tile = smem_tile("64B", "k", "bf16", 128, 64)
    >>> print(recognise(tile, "bf16", "sm_100a").k_advance)
    (2,2):(2,512)
    """
    inner, offset, mode = _parts(layout, dtype)
    bits = data_type(dtype).smem_bits
    address = whole("address", address)
    _check_type(dtype, arch, major, mode)
    rows, k = int(size(inner[0])), int(size(inner[1]))
    step = OPERAND_K_BYTES * 8 // bits
    if k % step:
        raise HardwareError(f"k={k}: one instruction reads {step} elements of {dtype}; {nearest_multiples(k, step)}")
    if rows % CORE_ROWS:
        raise HardwareError(f"rows={rows}: must be a multiple of 8; {nearest_multiples(rows, CORE_ROWS)}")
    wrong, first = _mismatch(inner, mode, major, bits, rows, step)
    if wrong:
        raise HardwareError(_not_canonical(layout, inner, mode, major, dtype, rows, step, first))
    if mode.bits and address % LINE:
        raise HardwareError(
            f"address={address}: the {mode.name} swizzle moves 16-byte chunks by the number of their 128-byte line, so the"
            f" tile's origin must be a multiple of 128, and of {mode.repeat} for TMA to write it; {nearest_multiples(address, LINE)}"
        )
    leading, stride = _fields(inner, mode, major, bits, rows, step)
    start = address + (offset + int(inner(0, 0))) * bits // 8
    if start % UNIT or not 0 <= start < FIELD_LIMIT:
        legal = min(max(start // UNIT * UNIT, 0), FIELD_LIMIT - UNIT)
        raise HardwareError(f"start {start}: must be a multiple of 16 in 0..{FIELD_LIMIT - UNIT}; nearest {legal}")
    # The layout's pattern starts at its origin: the unit must subtract the origin's line number (measured on an H200).
    base_offset = (address % mode.repeat) // LINE if mode.bits else 0
    descriptor = MatrixDescriptor(arch, start, leading, stride, mode.name, base_offset)
    descriptor.encode()
    return CanonicalOperand(descriptor, dtype, major, rows, _k_advance(inner, bits, k, step))


def _parts(layout: Tile, dtype: str) -> tuple[Layout, int, SwizzleMode]:
    """(layout inside, its offset, swizzle mode)."""
    if not isinstance(layout, Layout | SwizzledLayout):
        raise HardwareError(f"an operand tile is a Layout, swizzled or not, not {layout!r}")
    if isinstance(layout, SwizzledLayout):
        swizzle = layout.swizzle
        mode = mode_of_parameters(swizzle.bits, swizzle.base, swizzle.shift, data_type(dtype).smem_bits)
        inner, offset = layout.layout, layout.offset
    else:
        mode, inner, offset = swizzle_mode("none"), layout, 0
    if len(inner) != 2:
        raise HardwareError(f"layout {layout} has {len(inner)} modes: an operand tile has two, rows (M or N) and k")
    return inner, offset, mode


def _k_advance(inner: Layout, bits: int, k: int, step: int) -> Layout:
    import numpy as np

    columns = _byte_offsets(inner[1], bits, 1, k)[0].reshape(-1, step)
    irregular = np.argwhere((columns - columns[:, :1]) != (columns[0] - columns[0, 0]))
    if len(irregular):
        j = int(irregular[0, 0])
        raise HardwareError(f"k-step {j} (k = {j * step}..) does not lie as the first one does: {inner[1]} along k")
    try:
        advance: Layout = compose(inner[1], Layout(k // step, step))
    except LayoutError as error:
        raise HardwareError(f"the k-steps of {inner[1]} make no layout: {error}") from error

    def units(stride: Any) -> Any:
        if isinstance(stride, tuple):
            return tuple(units(item) for item in stride)
        if stride * bits % (8 * UNIT):
            raise HardwareError(f"a k-step of {stride * bits // 8} bytes: must be a multiple of 16 bytes")
        return stride * bits // (8 * UNIT)

    return Layout(advance.shape, units(advance.stride))


def _not_canonical(
    layout: Tile, inner: Layout, mode: SwizzleMode, major: str, dtype: str, rows: int, k: int, first: str
) -> str:
    bits = data_type(dtype).smem_bits
    ranked = []
    for other_major in MAJORS:
        for other in swizzle_modes():
            count, _ = _mismatch(inner, other, other_major, bits, rows, k)
            # Prefer what was asked for among equals.
            ranked.append((count, other_major != major, other.name != mode.name, other_major, other.name))
    _, _, _, best_major, best = min(ranked)
    return (
        f"{layout} is no {major}-major {mode.name} form of {dtype}: {first}; nearest canonical form: {best_major}-major {best},"
        f" whose atom is {smem_atom(best, best_major, dtype)}"
    )


def matrix_descriptor(
    layout: Tile, dtype: str = "bf16", arch: str = "sm_90a", major: str = "k", address: int = 0
) -> int:
    """The 64-bit matrix descriptor of a tile in shared memory (see ``recognise`` for the arguments and errors).

    >>> hex(matrix_descriptor(smem_tile("128B", "k", "bf16", 64, 64)))
    '0x4000004000010000'
    """
    return recognise(layout, dtype, arch, major, address).descriptor.encode()


def k_advance(layout: Tile, dtype: str = "bf16", arch: str = "sm_90a", major: str = "k") -> Layout:
    """What each following instruction along K adds to the descriptor's start, in units of 16 bytes, as a Layout.

    >>> print(k_advance(smem_tile("128B", "k", "bf16", 128, 128), arch="sm_100a"))
    (4,2):(2,1024)
    """
    return recognise(layout, dtype, arch, major).k_advance
