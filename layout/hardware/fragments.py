"""Who holds which element: the register fragments of wgmma, mma.sync, ldmatrix, stmatrix and movmatrix as Layouts.

Every function returns a Layout from (thread, value) to an element's place, value counting the elements of a thread's
registers in order, the low part of a register first. Matrix elements are numbered row + rows * column: m + 64 * n
for an accumulator of wgmma, m + M * k for A, n + N * k for B.

Sources: PTX ISA 9.1 sections 9.7.14.5 (mma, ldmatrix, stmatrix) and 9.7.15.5 (wgmma); all probed on an H200
(tests/data/h200/wgmma_fragments.npz, mma_fragments.npz); CuTe's traits give the same layouts.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core import Layout
from .dtypes import data_type
from .errors import HardwareError, is_whole, whole

REGISTER_BITS = 32
WGMMA_M = 64
WGMMA_THREADS = 128
WGMMA_MAXIMUM_N = 256


def wgmma_n_values(dtype: str = "bf16") -> tuple[int, ...]:
    """The legal N of one wgmma with inputs of that type (PTX 9.7.15.2): every 8 up to 256; integers 8, 16, 24, then by
    16.

    >>> len(wgmma_n_values("bf16")), wgmma_n_values("s8")[:6]
    (32, (8, 16, 24, 32, 48, 64))
    """
    kind = data_type(dtype)
    if kind.wgmma_k == 0:
        raise HardwareError(f"dtype {dtype}: wgmma takes bf16, f16, tf32, e4m3, e5m2, s8 and u8")
    if not kind.floating:
        return (8, 16, 24, *range(32, WGMMA_MAXIMUM_N + 1, 16))
    return tuple(range(8, WGMMA_MAXIMUM_N + 1, 8))


def _check_n(n: int, dtype: str) -> None:
    legal = wgmma_n_values(dtype)
    if whole("n", n) not in legal:
        best = sorted(legal, key=lambda value: abs(value - n))[:2]
        raise HardwareError(
            f"n={n}: wgmma with {dtype} takes N {'8, 16, 24, 32, 48, .. 256' if 48 in legal and 40 not in legal else '8, 16, .. 256'};"
            f" nearest {', '.join(map(str, sorted(best)))}"
        )


def wgmma_d_layout(n: int, dtype: str = "bf16") -> Layout:
    """The accumulator of wgmma m64nN: (128 threads, n/2 values) -> m + 64 * n. The same for every type.

    An f16 accumulator holds two consecutive values in a register, all others one. ``dtype`` is that of the inputs and
    only decides which N are legal. Raises HardwareError with the nearest legal N.

    >>> print(wgmma_d_layout(128))
    ((4,8,4),(2,2,16)):((128,1,16),(64,8,512))
    """
    _check_n(n, dtype)
    return Layout(((4, 8, 4), (2, 2, n // 8)), ((128, 1, 16), (64, 8, 512)))


def wgmma_a_layout(dtype: str) -> Layout:
    """A of wgmma in registers: (128 threads, values) -> m + 64 * k, four registers of 32 bits a thread.

    >>> print(wgmma_a_layout("bf16"))
    ((4,8,4),(2,2,2)):((128,1,16),(64,8,512))
    """
    kind = data_type(dtype)
    if kind.wgmma_k == 0:
        raise HardwareError(f"dtype {dtype}: wgmma takes bf16, f16, tf32, e4m3, e5m2, s8 and u8")
    each = REGISTER_BITS // kind.bits
    return Layout(((4, 8, 4), (each, 2, 2)), ((64 * each, 1, 16), (64, 8, 256 * each)))


def wgmma_smem_a_layout(dtype: str) -> Layout:
    """A of wgmma from shared memory, as CuTe writes it: every thread of 128 sees all of (64, k) -> m + 64 * k.

    >>> print(wgmma_smem_a_layout("bf16"))
    (128,(64,16)):(0,(1,64))
    """
    return Layout((WGMMA_THREADS, (WGMMA_M, data_type(dtype).wgmma_k)), (0, (1, WGMMA_M)))


def wgmma_smem_b_layout(n: int, dtype: str) -> Layout:
    """B of wgmma from shared memory, as CuTe writes it: every thread of 128 sees all of (n, k) -> n + N * k.

    >>> print(wgmma_smem_b_layout(128, "bf16"))
    (128,(128,16)):(0,(1,128))
    """
    _check_n(n, dtype)
    return Layout((WGMMA_THREADS, (n, data_type(dtype).wgmma_k)), (0, (1, n)))


@dataclass(frozen=True)
class MmaShape:
    """An mma.sync instruction: M, N, K, the type of its factors, and the types its accumulator may have."""

    m: int
    n: int
    k: int
    dtype: str
    accumulators: tuple[str, ...]
    since: int = 80

    @property
    def name(self) -> str:
        """The shape as PTX writes it."""
        return f"m{self.m}n{self.n}k{self.k}"


# PTX ISA 9.1 section 9.7.14.5, dense mma.sync with row.col operands. m8n8k4.f16 (sm_70, quad pairs) is left out.
MMA_SHAPES = (
    MmaShape(16, 8, 8, "f16", ("f16", "f32"), 75),
    MmaShape(16, 8, 16, "f16", ("f16", "f32")),
    MmaShape(16, 8, 8, "bf16", ("f32",)),
    MmaShape(16, 8, 16, "bf16", ("f32",)),
    MmaShape(16, 8, 4, "tf32", ("f32",)),
    MmaShape(16, 8, 8, "tf32", ("f32",)),
    MmaShape(8, 8, 16, "s8", ("s32",), 75),
    MmaShape(16, 8, 16, "s8", ("s32",)),
    MmaShape(16, 8, 32, "s8", ("s32",)),
    MmaShape(8, 8, 16, "u8", ("s32",), 75),
    MmaShape(16, 8, 16, "u8", ("s32",)),
    MmaShape(16, 8, 32, "u8", ("s32",)),
    MmaShape(16, 8, 16, "e4m3", ("f16", "f32"), 89),
    MmaShape(16, 8, 32, "e4m3", ("f16", "f32"), 89),
    MmaShape(16, 8, 16, "e5m2", ("f16", "f32"), 89),
    MmaShape(16, 8, 32, "e5m2", ("f16", "f32"), 89),
    MmaShape(8, 8, 4, "f64", ("f64",)),
    MmaShape(16, 8, 4, "f64", ("f64",), 90),
    MmaShape(16, 8, 8, "f64", ("f64",), 90),
    MmaShape(16, 8, 16, "f64", ("f64",), 90),
)


def mma_shape(m: int, n: int, k: int, dtype: str) -> MmaShape:
    """That mma.sync. Raises HardwareError with the K there are for the type.

    >>> mma_shape(16, 8, 16, "bf16").accumulators
    ('f32',)
    """
    for shape in MMA_SHAPES:
        if (shape.m, shape.n, shape.k, shape.dtype) == (m, n, k, dtype):
            return shape
    known = ", ".join(shape.name for shape in MMA_SHAPES if shape.dtype == dtype)
    types = ", ".join(sorted({s.dtype for s in MMA_SHAPES}))
    raise HardwareError(f"no mma.sync m{m}n{n}k{k} for {dtype}: {known or 'types are ' + types}")


def _per_register(dtype: str) -> int:
    return max(REGISTER_BITS // data_type(dtype).bits, 1)


def mma_a_layout(m: int, n: int, k: int, dtype: str) -> Layout:
    """A of mma.sync: (32 lanes, values) -> m + M * k.

    >>> print(mma_a_layout(16, 8, 16, "bf16"))
    ((4,8),(2,2,2)):((32,1),(16,8,128))
    """
    mma_shape(m, n, k, dtype)
    each = _per_register(dtype)
    # A register holds consecutive k; four lanes side by side; then eight rows on, then the next four lanes' k.
    return Layout(((4, 8), (each, m // 8, k // (4 * each))), ((m * each, 1), (m, 8, 4 * m * each)))


def mma_b_layout(m: int, n: int, k: int, dtype: str) -> Layout:
    """B of mma.sync: (32 lanes, values) -> n + N * k.

    >>> print(mma_b_layout(16, 8, 16, "bf16"))
    ((4,8),(2,2)):((16,1),(8,64))
    """
    mma_shape(m, n, k, dtype)
    each = _per_register(dtype)
    return Layout(((4, 8), (each, k // (4 * each))), ((n * each, 1), (n, 4 * n * each)))


def mma_d_layout(m: int, n: int, k: int, dtype: str) -> Layout:
    """C and D of mma.sync: (32 lanes, values) -> m + M * n.

    >>> print(mma_d_layout(16, 8, 16, "bf16"))
    ((4,8),(2,2)):((32,1),(16,8))
    """
    mma_shape(m, n, k, dtype)
    return Layout(((4, 8), (2, m // 8)), ((2 * m, 1), (m, 8)))


def _check_matrices(matrices: int) -> None:
    if not is_whole(matrices) or matrices not in (1, 2, 4):
        raise HardwareError(f"matrices={matrices}: ldmatrix and stmatrix move x1, x2 or x4")


def ldmatrix_layout(matrices: int, trans: bool = False) -> Layout:
    """What ldmatrix puts where: (32 lanes, 2 halves of each of ``matrices`` registers) -> 8 * source lane + column.

    The source lane is the one whose address names the row (lane 8 * i + r: row r of matrix i), the column one of the
    row's eight 16-bit values. Lanes from 8 * matrices on name nothing.

    >>> print(ldmatrix_layout(4))
    ((4,8),(2,4)):((2,8),(1,64))
    >>> print(ldmatrix_layout(4, trans=True))
    ((4,8),(2,4)):((16,1),(8,64))
    """
    _check_matrices(matrices)
    lanes, half = ((16, 1), 8) if trans else ((2, 8), 1)
    return Layout(((4, 8), (2, matrices)), (lanes, (half, 64)))


def stmatrix_layout(matrices: int, trans: bool = False) -> Layout:
    """Where stmatrix writes: (32 lanes, 2 halves of each of ``matrices`` registers) -> 8 * addressing lane + column.

    The same map as ldmatrix's, read the other way (measured). stmatrix needs sm_90.

    >>> print(stmatrix_layout(2))
    ((4,8),(2,2)):((2,8),(1,64))
    """
    return ldmatrix_layout(matrices, trans)


def movmatrix_layout() -> Layout:
    """movmatrix.trans: (32 lanes, 2 halves of the result) -> 2 * source lane + source half.

    >>> movmatrix_layout()(1, 0)
    16
    """
    # The fragment of an 8x8 matrix numbers element (row, column) 8 * row + column = 2 * lane + half; the result is
    # transposed.
    return Layout(((4, 8), 2), ((16, 1), 8))


def ldmatrix_row_layout(matrices: int) -> Layout:
    """Which matrix row a lane's address names: lane -> row + 8 * matrix (as far as lanes name any).

    >>> print(ldmatrix_row_layout(4))
    32:1
    """
    _check_matrices(matrices)
    return Layout(8 * matrices, 1)
