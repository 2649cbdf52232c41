"""Scale factors of block-scaled tcgen05.mma, from global memory through shared memory to tensor memory, as Layouts.

One factor stands for ``vector`` neighbouring elements of a row along K: 32 of the OCP microscaling formats (factors
ue8m0), 16 of NVIDIA's nvfp4 (ue4m3). Everywhere they lie in atoms of 128 rows x 4 factors, 512 bytes; a row's four stand
side by side, which is what a 32-bit column of tensor memory holds. Everything below is the atom, tiled.

Sources: PTX ISA 9.1 section 9.7.16.10.5 (the atom, scale_vec, ids); CuTe's sm100_blockscaled_layout.hpp and the CuTe
DSL's blockscaled_layout.py, which tests hold these layouts against. Nothing was run here on a Blackwell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..algebra import size
from ..coordinates import idx2crd
from ..core import Layout
from ..inverse import left_inverse
from ..products import tile_to_shape
from .errors import HardwareError, Problem, nearest_multiples, whole
from .tensor_memory import scale_smem_layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

ATOM_ROWS = 128
ATOM_SCALES = 4
ATOM_BYTES = ATOM_ROWS * ATOM_SCALES
ATOM_COLUMNS = 4
"""32-bit columns of tensor memory that an atom takes: one for every 32 of its rows."""
SCALE_ALIGNMENT = 16
"""Bytes: the copy engine takes no other starts (CUDA driver API, cuTensorMapEncodeTiled)."""
SCALE_VECTORS = {"ue8m0": (32,), "ue4m3": (16,)}
"""Elements that share a factor, by its format, in the formats served: mxfp8, mxfp6, mxfp4; nvfp4."""


@dataclass(frozen=True)
class ScaledType:
    """A block-scaled format: ``vector`` elements of format ``element`` along K share a factor of format ``scale``."""

    name: str
    element: str
    scale: str
    vector: int


SCALED_TYPES = {
    one.name: one
    for one in (
        ScaledType("mxfp8", "e4m3", "ue8m0", 32),
        ScaledType("mxfp8_e5m2", "e5m2", "ue8m0", 32),
        ScaledType("mxfp6_e3m2", "e3m2", "ue8m0", 32),
        ScaledType("mxfp6_e2m3", "e2m3", "ue8m0", 32),
        ScaledType("mxfp4", "e2m1", "ue8m0", 32),
        ScaledType("nvfp4", "e2m1", "ue4m3", 16),
    )
}
"""OCP Microscaling formats 1.0, table 1 (mxfp8 alone is that of e4m3), and NVIDIA's nvfp4 (PTX ISA 9.1, kind::mxf4nvf4)."""


def scaled_kind(a: str, b: str) -> str:
    """The kind of tcgen05.mma that multiplies two block-scaled formats; "" where none does. Two mxfp4 have a kind of their own,
    which reads packed values at twice the rate (PTX ISA 9.1, section 9.7.16.10.5).

    >>> scaled_kind("mxfp8", "mxfp4"), scaled_kind("mxfp4", "mxfp4"), scaled_kind("nvfp4", "nvfp4"), scaled_kind("nvfp4", "mxfp4")
    ('mxf8f6f4', 'mxf4', 'mxf4nvf4', '')
    """
    if a not in SCALED_TYPES or b not in SCALED_TYPES or SCALED_TYPES[a].scale != SCALED_TYPES[b].scale:
        return ""
    if SCALED_TYPES[a].scale == "ue4m3":
        return "mxf4nvf4"
    return "mxf4" if a == b == "mxfp4" else "mxf8f6f4"


def scale_layout_of(rows: int, k: int, vector: int = 32) -> Layout:
    """All factors of an operand in global memory, or of a slot in shared memory: (row, element of K) -> byte.

    Atoms follow one another along K first, then along the rows; ``rows`` and ``k`` (elements) are padded to whole atoms.
    The elements that share a factor have its byte. CuTe calls it tile_atom_to_shape_SFA.

    >>> print(scale_layout_of(256, 512))
    (((32,4),2),((32,4),4)):(((16,4),2048),((0,1),512))
    >>> scale_layout_of(256, 512)(33, 64)
    22
    """
    atom = scale_smem_layout(ATOM_ROWS, vector)
    padded = (_up(rows, ATOM_ROWS), _up(k, vector * ATOM_SCALES))
    tiled: Layout = tile_to_shape(atom, padded, order=(1, 0))
    return tiled


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


@dataclass(frozen=True)
class ScaleTensor:
    """The factors of one operand as a kernel expects them: of ``rows`` rows and ``k`` elements, one for each ``vector``.

    >>> scales = ScaleTensor("scale_a", rows=200, k=512, vector=32, dtype="ue8m0")
    >>> scales.shape, scales.bytes, scales.factors
    ((2, 4, 32, 4, 4), 4096, (200, 16))
    """

    name: str
    rows: int
    k: int
    vector: int = 32
    dtype: str = "ue8m0"

    def __post_init__(self) -> None:
        for field, value in (("rows", self.rows), ("k", self.k), ("vector", self.vector)):
            if whole(field, value) < 1:
                raise HardwareError(f"{field}={value}: must be at least 1")
        allowed = SCALE_VECTORS.get(self.dtype)
        if allowed is None or self.vector not in allowed:
            known = ", ".join(f"{name} for each {size}" for name, sizes in SCALE_VECTORS.items() for size in sizes)
            raise HardwareError(f"{self.name}: {self.dtype} for each {self.vector} elements of K; there is {known}")
        if self.k % self.vector:
            raise HardwareError(
                f"k={self.k}: must be a multiple of {self.vector}, the elements that share a factor; {nearest_multiples(self.k, self.vector)}: "
                "pad both operands with zeros, which changes no result"
            )

    @property
    def layout(self) -> Layout:
        """(row, element of K) -> byte, atoms and all."""
        return scale_layout_of(self.rows, self.k, self.vector)

    @property
    def atoms(self) -> tuple[int, int]:
        """Atoms along the rows and along K."""
        return -(-self.rows // ATOM_ROWS), -(-self.k // (self.vector * ATOM_SCALES))

    @property
    def factors(self) -> tuple[int, int]:
        """Shape of the factors before they are laid out: (rows, k / vector)."""
        return self.rows, self.k // self.vector

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """The array's shape, dense, slowest first: (row / 128, factor / 4, row % 32, row / 32 % 4, factor % 4).

        These are the modes of the layout by falling stride.
        """
        (in_atom, along_rows), ((_, scales), along_k) = self.layout.shape
        lanes, groups = in_atom
        return along_rows, along_k, lanes, groups, scales

    @property
    def bytes(self) -> int:
        """Size in memory, padding included."""
        down, along = self.atoms
        return down * along * ATOM_BYTES

    def positions(self) -> NDArray[Any]:
        """The byte of every factor: int64 of shape (rows, k / vector).

        >>> ScaleTensor("scale_b", 64, 128).positions()[33].tolist()
        [20, 21, 22, 23]
        """
        import numpy as np

        layout = self.layout
        # A layout of two modes is the sum of its modes, so each is evaluated once.
        rows, factors = np.arange(self.rows), np.arange(self.factors[1]) * self.vector
        found: NDArray[Any] = layout[0](rows)[:, None] + layout[1](factors)[None, :]
        return found

    def place(self, codes: NDArray[Any], padding: int = 0) -> NDArray[Any]:
        """The factors (rows, k / vector), one byte each, laid out: uint8 of ``shape``. ``padding`` fills what no factor has.

        The kernels multiply padding by zeros along K, so it must be finite there: 0 is the least factor of either format.

        >>> import numpy
        >>> scales = ScaleTensor("scale_a", 4, 64)
        >>> scales.place(numpy.arange(8, dtype=numpy.uint8).reshape(4, 2))[0, 0, :4, 0].tolist()
        [[0, 1, 0, 0], [2, 3, 0, 0], [4, 5, 0, 0], [6, 7, 0, 0]]
        """
        import numpy as np

        codes = np.asarray(codes)
        if codes.shape != self.factors or codes.dtype.itemsize != 1:
            raise HardwareError(
                f"{self.name}: factors of shape {codes.shape}, {codes.dtype}, to lay out; {self.factors} of one byte each are expected, "
                f"one for each {self.vector} elements of K"
            )
        if whole("padding", padding) not in range(256):
            raise HardwareError(f"{self.name}: padding={padding}: must be the code of a factor, a byte from 0 to 255")
        out = np.full(self.bytes, padding, np.uint8)
        out[self.positions()] = np.ascontiguousarray(codes).view(np.uint8)
        return out.reshape(self.shape)

    def gather(self, placed: NDArray[Any]) -> NDArray[Any]:
        """The reverse of ``place``: uint8 of shape (rows, k / vector). Raises HardwareError, drawn, for another array.

        >>> import numpy
        >>> scales = ScaleTensor("scale_a", 130, 96)
        >>> codes = numpy.arange(390, dtype=numpy.uint16).astype(numpy.uint8).reshape(130, 3)
        >>> bool((scales.gather(scales.place(codes)) == codes).all())
        True
        """
        import numpy as np

        placed = np.asarray(placed)
        self.require(placed.shape, str(placed.dtype), contiguous=bool(placed.flags.c_contiguous))
        found: NDArray[Any] = placed.view(np.uint8).reshape(-1)[self.positions()]
        return found

    # ---- refusals ---------------------------------------------------------------------------------------------------

    def problems(
        self, shape: Sequence[int], dtype: str, address: int = 0, contiguous: bool = True
    ) -> tuple[Problem, ...]:
        """What of an array is not as this tensor: its shape, format, start, or holes in it. Flat bytes are accepted.

        >>> [str(p) for p in ScaleTensor("scale_a", 128, 128).problems((128, 4), "uint8")][0][:60]
        'scale_a.shape=(128, 4): must be (1, 1, 32, 4, 4); these are '
        """
        found = []
        shape = tuple(int(size) for size in shape)
        if shape not in (self.shape, (self.bytes,)):
            hint = f"or {self.bytes} bytes"
            if shape == self.factors:
                hint = "these are the factors as (rows, K / vector): place() lays them out; a quantised matrix has them so as .scales"
            elif shape == self.factors[::-1]:
                hint = "these are the factors transposed, not laid out: place(array.T) does both"
            elif sorted(shape) == sorted(self.shape):
                hint = "its dimensions are in another order"
            found.append(Problem(f"{self.name}.shape", shape, f"must be {self.shape}", hint))
        if dtype not in ARRAY_TYPES[self.dtype]:
            names = " or ".join(ARRAY_TYPES[self.dtype])
            found.append(Problem(f"{self.name}.dtype", dtype, f"must be {names} (format {self.dtype})", ""))
        if address % SCALE_ALIGNMENT:
            rule = f"must be a multiple of {SCALE_ALIGNMENT} bytes (TMA)"
            found.append(Problem(f"{self.name}.address", hex(address), rule, "a copy has that"))
        if not contiguous:
            rule = "must be dense: atoms follow one another without holes"
            found.append(Problem(f"{self.name}.strides", "not contiguous", rule, "a contiguous copy is"))
        return tuple(found)

    def require(self, shape: Sequence[int], dtype: str, address: int = 0, contiguous: bool = True) -> None:
        """Raises HardwareError with everything that is wrong and a drawing of what is expected; nothing if all is right."""
        found = self.problems(shape, dtype, address, contiguous)
        if found:
            raise HardwareError("\n".join([*map(str, found), self.draw()]))

    def require_numbers(self, placed: NDArray[Any]) -> None:
        """Raises HardwareError where what pads K holds NaN, in a row that counts: kernels multiply it by zeros, and that would not
        be zero. (The arrays of a device are not looked into.)

        >>> import numpy
        >>> scales = ScaleTensor("scale_a", 4, 96)
        >>> scales.require_numbers(scales.place(numpy.zeros((4, 3), numpy.uint8), padding=127))
        """
        import numpy as np

        span = self.vector * ATOM_SCALES
        beyond = np.arange(self.k, -(-self.k // span) * span, self.vector)
        if not beyond.size:
            return
        layout = self.layout
        positions = layout[0](np.arange(self.rows))[:, None] + layout[1](beyond)[None, :]
        found = np.argwhere(np.asarray(placed).view(np.uint8).reshape(-1)[positions] == NAN_CODES[self.dtype])
        if found.size:
            row, number = (int(x) for x in found[0])
            raise HardwareError(
                f"{self.name}: the padding of row {row}, factor {self.factors[1] + number}, holds NaN ({NAN_CODES[self.dtype]:#04x}); along K it must "
                f"be a number, for it meets zeros; place() writes 0\n{self.draw()}"
            )

    def draw(self) -> str:
        """The layout in text: an atom's rows in their 16 bytes, and where the atoms stand.

        >>> print(ScaleTensor("scale_a", 200, 256).draw())
        expected: scale_a, 200 rows x 8 factors ue8m0, one for each 32 of K; (2, 2, 32, 4, 4), 2048 bytes
        (row, element of K) -> byte: (((32,4),2),((32,4),2)):(((16,4),1024),((0,1),512))
          atom, 128 rows x 4 factors:
            byte |    +0..3 |    +4..7 |   +8..11 |  +12..15
               0 |    row 0 |   row 32 |   row 64 |   row 96
              16 |    row 1 |   row 33 |   row 65 |   row 97
              .. |
             496 |   row 31 |   row 63 |   row 95 |  row 127
          atoms, by their first byte:
              rows, K |   0..127 | 128..255
               0..127 |        0 |      512
             128..255 |     1024 |     1536   (rows from 200 on are padding)
        """
        return draw(self)


NAN_CODES = {"ue8m0": 0xFF, "ue4m3": 0x7F}
"""The code that is no number, of each format of factors (OCP MX 1.0, section 5.4.1; PTX ISA 9.1, section 5.2.3)."""

ARRAY_TYPES = {"ue8m0": ("uint8", "float8_e8m0fnu"), "ue4m3": ("uint8", "float8_e4m3fn")}
"""Names of the array types in which factors may come: their bytes, or the type of ml_dtypes and PyTorch."""


def draw(scales: ScaleTensor) -> str:
    """The text of :meth:`ScaleTensor.draw`, computed from its layout.

    >>> draw(ScaleTensor("scale_b", 128, 64, 16, "ue4m3")).splitlines()[-1].strip()
    '0..127 |        0'
    """
    layout = scales.layout
    down, along = scales.atoms
    span = scales.vector * ATOM_SCALES
    row_of = {int(layout(row, 0)): row for row in range(ATOM_ROWS)}
    lines = [
        f"expected: {scales.name}, {scales.rows} rows x {scales.factors[1]} factors {scales.dtype}, one for each {scales.vector} of K; "
        f"{scales.shape}, {scales.bytes} bytes",
        f"(row, element of K) -> byte: {layout}",
        "  atom, 128 rows x 4 factors:",
        "    byte |" + " |".join(f"{f'+{first}..{first + 3}':>9}" for first in range(0, 16, 4)),
    ]
    for byte in (0, 16, None, ATOM_BYTES - 16):
        if byte is None:
            lines.append("      .. |")
        else:
            cells = (f"{f'row {row_of[byte + first]}':>9}" for first in range(0, 16, 4))
            lines.append(f"    {byte:>4} |" + " |".join(cells))
    lines.append("  atoms, by their first byte:")
    shown_k, shown_rows = _shown(along), _shown(down)

    def ranges(number: int | None, each: int) -> str:
        return ".." if number is None else f"{number * each}..{number * each + each - 1}"

    lines.append(f"    {'rows, K':>9} |" + " |".join(f"{ranges(number, span):>9}" for number in shown_k))
    for block in shown_rows:
        if block is None:
            lines.append(f"    {'..':>9} |")
            continue
        cells = (".." if number is None else str(layout(block * ATOM_ROWS, number * span)) for number in shown_k)
        line = f"    {ranges(block, ATOM_ROWS):>9} |" + " |".join(f"{cell:>9}" for cell in cells)
        if (block + 1) * ATOM_ROWS > scales.rows:
            line += f"   (rows from {scales.rows} on are padding)"
        lines.append(line)
    if along * span > scales.k:
        lines.append(f"    (K from {scales.k} on is padding: any finite factor, 0 from place())")
    return "\n".join(lines)


def _shown(count: int, most: int = 4) -> list[int | None]:
    """Which of so many are drawn: all, or the first two and the last with None for what is between."""
    return list(range(count)) if count <= most else [0, 1, None, count - 1]


@dataclass(frozen=True)
class ScaleSlot:
    """The factors of an operand's tile in one CTA: in a slot of shared memory and, copied there, in tensor memory.

    ``rows`` and ``k`` (elements) of the tile, padded to whole atoms; ``step_k``: elements of K of one tcgen05.mma. A pair's
    CTAs hold the factors of their own rows of A, and both those of all rows of B (PTX ISA 9.1, section 9.7.16.10.5).

    >>> slot = ScaleSlot(rows=256, k=256, vector=16, step_k=64)
    >>> slot.bytes, slot.columns, print(slot.shared, slot.source, slot.destination)
    (((32,4),2),((16,4),4)):(((16,4),2048),((0,1),512)) (2,4):(2048,512) (2,4):(4,8)
    (4096, 32, None)
    """

    rows: int
    k: int
    vector: int
    step_k: int

    @property
    def atoms(self) -> tuple[int, int]:
        """Atoms along the rows and along K: each is one tcgen05.cp.32x128b.warpx4."""
        return -(-self.rows // ATOM_ROWS), -(-self.k // (self.vector * ATOM_SCALES))

    @property
    def shared(self) -> Layout:
        """(row, element of K) -> byte of the slot."""
        return scale_layout_of(self.rows, self.k, self.vector)

    def coordinate(self, byte: int) -> tuple[int, int]:
        """(row, first element of K) of the factor at this byte of the slot: the reverse of ``shared``.

        >>> ScaleSlot(256, 256, 32, 64).coordinate(1024 + 512 + 16 * 3 + 4 + 2)
        (163, 192)
        """
        shape, stride = self.shared.shape, self.shared.stride
        # Without the elements that share a byte it is one to one.
        factors = Layout((shape[0], (shape[1][0][1], shape[1][1])), (stride[0], (stride[1][0][1], stride[1][1])))
        row, factor = idx2crd(int(left_inverse(factors)(byte)), (int(size(factors[0])), int(size(factors[1]))))
        return int(row), int(factor) * self.vector

    @property
    def bytes(self) -> int:
        """Bytes of shared memory."""
        down, along = self.atoms
        return down * along * ATOM_BYTES

    @property
    def columns(self) -> int:
        """32-bit columns of tensor memory."""
        down, along = self.atoms
        return down * along * ATOM_COLUMNS

    @property
    def source(self) -> Layout:
        """(atom along the rows, atom along K) -> byte of the slot where a copy reads."""
        down, along = self.atoms
        layout = self.shared
        return Layout(
            (down, along),
            (
                int(layout(ATOM_ROWS, 0)) if down > 1 else 0,
                int(layout(0, self.vector * ATOM_SCALES)) if along > 1 else 0,
            ),
        )

    @property
    def destination(self) -> Layout:
        """The same -> first column of tensor memory where it writes: atoms of one K side by side, as the multiply reads them."""
        down, along = self.atoms
        return Layout((down, along), (ATOM_COLUMNS if down > 1 else 0, ATOM_COLUMNS * down if along > 1 else 0))

    @property
    def steps(self) -> int:
        """Instructions along K of a slot."""
        return -(-self.k // self.step_k)

    @property
    def sharing(self) -> int:
        """Instructions along K that find their factors in the same columns, told apart by the scale factor id."""
        return self.vector * ATOM_SCALES // self.step_k

    @property
    def step_columns(self) -> Layout:
        """Step along K -> first column of its factors, within the slot's.

        >>> print(ScaleSlot(128, 256, 32, 64).step_columns, ScaleSlot(128, 128, 32, 32).step_columns)
        (2,2):(0,4) 4:0
        """
        down, along = self.atoms
        further = ATOM_COLUMNS * down
        if along == 1:
            return Layout(self.steps, 0)
        if self.sharing == 1:
            return Layout(self.steps, further)
        return Layout((self.sharing, along), (0, further))

    @property
    def step_ids(self) -> Layout:
        """Step along K -> scale factor id: the first byte of the columns that it reads.

        >>> print(ScaleSlot(128, 256, 32, 64).step_ids, ScaleSlot(128, 128, 32, 32).step_ids, ScaleSlot(128, 128, 16, 64).step_ids)
        (2,2):(2,0) 4:1 2:0
        """
        _, along = self.atoms
        each = self.step_k // self.vector
        if self.sharing == 1:
            return Layout(self.steps, 0)
        return Layout(self.steps, each) if along == 1 else Layout((self.sharing, along), (each, 0))

    @property
    def memory(self) -> Layout:
        """(row, element of K) -> byte cell of tensor memory, lane << 18 | column * 4 | byte, in the first quarter of lanes.

        The map from the slot's bytes that the copies make, after the slot's layout; repeated in each quarter of 32 lanes.

        >>> print(ScaleSlot(256, 256, 32, 64).memory)
        (((32,4),2),((32,4),2)):(((262144,4),16),((0,1),32))
        """
        down, along = self.atoms
        lane = 1 << 18
        row, k = ((32, 4), (lane, 4)), ((self.vector, 4), (0, 1))
        place = self.destination.stride
        return Layout(
            ((row[0], down), (k[0], along)),
            ((row[1], 4 * place[0]), (k[1], 4 * place[1])),
        )
