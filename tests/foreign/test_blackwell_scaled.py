"""QuACK's block-scaled Blackwell GEMMs, right on the emulator: mxfp8, mxfp4 and nvfp4, by one block and by pairs.

Operands are small integers and scales powers of two, so that every sum is exact and D is known to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from .capture import DeviceTensor
from .test_foreign_kernels import skip_unless_available

pytestmark = pytest.mark.slow

Array = NDArray[Any]
ELEMENTS = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
}
SCALE_TYPES = {"e8m0": ml_dtypes.float8_e8m0fnu, "e4m3": ml_dtypes.float8_e4m3fn}


@dataclass(frozen=True)
class Scaled:
    """Types of the elements and of their scales, how many elements share one, and the tile. `b`: B's type, if another than A's."""

    dtype: str
    scale: str
    vector: int
    tile: tuple[int, int] = (128, 128)
    cluster: tuple[int, int] = (1, 1)
    b: str | None = None


KERNELS = {
    "mxfp8": Scaled("e4m3", "e8m0", 32),
    "mxfp8-2-cta": Scaled("e4m3", "e8m0", 32, (256, 128), (2, 1)),
    "mxfp4": Scaled("e2m1", "e8m0", 32, (128, 192)),
    "mxfp4-2-cta": Scaled("e2m1", "e8m0", 32, (256, 256), (2, 1)),
    "nvfp4": Scaled("e2m1", "e4m3", 16),
    "nvfp4-2-cta": Scaled("e2m1", "e4m3", 16, (256, 128), (2, 1)),
    "nvfp4-cluster-4x1": Scaled("e2m1", "e4m3", 16, (256, 128), (4, 1)),
    "mxfp8-mxfp4": Scaled("e4m3", "e8m0", 32, b="e2m1"),
    "mxfp8-mxfp6-2-cta": Scaled("e4m3", "e8m0", 32, (256, 128), (2, 1), b="e2m3"),
    "mxfp6-mxfp4": Scaled("e3m2", "e8m0", 32, b="e2m1"),
    "mxfp4-mxfp8-2-cta": Scaled("e2m1", "e8m0", 32, (256, 256), (2, 1), b="e4m3"),
}
"""Where the two types differ, values of 4 and 6 bits are padded by TMA (PTX ISA, .b4x16_p64 and .b6x16_p32), and kind::mxf8f6f4 reads them."""

SHAPES = ((256, 256, 512), (384, 128, 768))


@dataclass(frozen=True)
class Operand:
    """An operand as it lies in memory, its scales likewise, and the numbers that both stand for."""

    data: Array
    scales: Array
    values: Array


def packed(codes: Array, bits: int) -> Array:
    """Rows of codes as bytes without gaps, the element of the lowest k in the lowest bits."""
    each = np.unpackbits(codes[..., None], axis=-1, bitorder="little")[..., :bits]
    return np.packbits(each.reshape(codes.shape[0], -1), axis=-1, bitorder="little")


def operand(random: np.random.Generator, rows: int, k: int, kind: Scaled, dtype: str) -> Operand:
    """Elements from -4 to 4 with scales from 1/2 to 2."""
    elements = random.integers(-4, 5, (rows, k)).astype(np.float32)
    factors = 2.0 ** random.integers(-1, 2, (rows, k // kind.vector))
    data = elements.astype(ELEMENTS[dtype])
    if bits := {"e2m1": 4, "e2m3": 6, "e3m2": 6}.get(dtype):
        data = packed(data.view(np.uint8), bits)
    codes = factors.astype(SCALE_TYPES[kind.scale]).view(np.uint8)
    scales = np.zeros((1, -(-rows // 128), codes.shape[1] // 4, 32, 4, 4), np.uint8)
    # An atom is 128 rows times 4 scales in 512 bytes (PTX ISA, "Scale factor layout", 32x4x4).
    for row in range(rows):
        for column in range(codes.shape[1]):
            scales[0, row // 128, column // 4, row % 32, row // 32 % 4, column % 4] = codes[row, column]
    return Operand(data, scales, elements * np.repeat(factors, kind.vector, axis=1))


Run = Callable[[Operand, Operand, Array, int], Any]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    skip_unless_available("quack")
    from .quack_gemm import QuackGemm

    made: dict[str, Any] = {}

    def build(name: str) -> Any:
        if name not in made:
            kind, folder = KERNELS[name], Path(tmp_path_factory.mktemp(name))
            made[name] = QuackGemm(
                folder,
                kind.tile,
                kind.cluster,
                dtype=kind.dtype,
                arch="sm_100a",
                scale=kind.scale,
                vector=kind.vector,
                b_dtype=kind.b,
            )
        return made[name]

    return build


def tensor(address: int, array: Array, dtype: str) -> DeviceTensor:
    """A packed array on a device that is not there."""
    return DeviceTensor(address, array.shape, tuple(step // array.itemsize for step in array.strides), dtype)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("name", KERNELS)
def test_scaled_products_to_the_bit(
    name: str, shape: tuple[int, int, int], seed: int, compiled: Callable[[str], Any]
) -> None:
    kind, (m, n, k) = KERNELS[name], shape
    random = np.random.default_rng(seed)
    types = (kind.dtype, kind.b or kind.dtype)
    a, b = operand(random, m, k, kind, types[0]), operand(random, n, k, kind, types[1])
    d = np.full((m, n), np.nan, ml_dtypes.bfloat16)
    arrays = {0x7F00_0000_0000 + (i << 36): x for i, x in enumerate((a.data, b.data, d, a.scales, b.scales))}
    addresses = list(arrays)
    given = [{"e2m1": "e2m1x2", "e2m3": "u8", "e3m2": "u8"}.get(t, t) for t in (*types, "bf16")]
    batched = [tensor(at, arrays[at][None], t) for at, t in zip(addresses, given, strict=False)]
    scales = (tensor(addresses[3], a.scales, kind.scale), tensor(addresses[4], b.scales, kind.scale))
    launch = compiled(name).launch(*batched, clusters=2, scales=scales)
    result = launch.emulate(arrays, strict=False, seed=seed)
    exact = (a.values.astype(np.float64) @ b.values.astype(np.float64).T).astype(np.float32)
    assert np.array_equal(d, exact.astype(ml_dtypes.bfloat16))
    assert not result.races


def test_products_without_their_scales_would_be_others() -> None:
    random = np.random.default_rng(0)
    one = operand(random, 128, 128, KERNELS["nvfp4"], "e2m1")
    assert len(np.unique(one.scales)) == 3
    assert not np.array_equal(one.values, np.rint(one.values))
