"""QuACK's GEMM beyond D = A B: fused epilogues, groups of rows, gathered rows, a sum split among blocks. Emulated with no GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from stridewright.codegen.emulator import EmulationResult

from .capture import DeviceTensor, Launch
from .test_foreign_kernels import skip_unless_available

pytestmark = pytest.mark.slow

Array = NDArray[Any]
BF16 = ml_dtypes.bfloat16
NAMES = {np.dtype(BF16): "bf16", np.dtype(np.float32): "f32", np.dtype(np.int32): "s32"}

M, N, K = 200, 264, 192


class Device:
    """Gives arrays addresses, and remembers which has which."""

    def __init__(self) -> None:
        self.arrays: dict[int, Array] = {}
        self._addresses = (0x7F00_0000_0000 + (number << 32) for number in count())

    def tensor(self, array: Array, batch: bool = True) -> DeviceTensor:
        address = next(self._addresses)
        self.arrays[address] = array
        shape, strides = array.shape, tuple(stride // array.itemsize for stride in array.strides)
        if batch:
            shape, strides = (1, *shape), (array.size, *strides)
        return DeviceTensor(address, shape, strides, NAMES[array.dtype])

    def run(self, launch: Launch, **how: Any) -> EmulationResult:
        return launch.emulate(self.arrays, **how)


@dataclass(frozen=True)
class Inputs:
    """Small integers: every sum is exact, so that results are known to the bit."""

    random: np.random.Generator

    def matrix(self, *shape: int, dtype: Any = BF16) -> Array:
        return self.random.integers(-4, 5, shape).astype(dtype)


@pytest.fixture
def inputs() -> Inputs:
    return Inputs(np.random.default_rng(7))


@pytest.fixture(scope="module")
def quack(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    skip_unless_available("quack")
    from .quack_gemm import QuackGemm

    compiled: dict[str, Any] = {}

    def build(name: str, **options: Any) -> Any:
        if name not in compiled:
            folder: Path = tmp_path_factory.mktemp(name)
            compiled[name] = QuackGemm(folder, **options)
        return compiled[name]

    return build


def rounded(exact: Array) -> Array:
    return exact.astype(np.float32).astype(BF16)


def product(a: Array, b: Array) -> Array:
    return a.astype(np.float64) @ b.astype(np.float64).T


@pytest.mark.parametrize("ping_pong", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_alpha_beta_c_and_both_biases(quack: Callable[..., Any], inputs: Inputs, seed: int, ping_pong: bool) -> None:
    """In ping-pong QuACK waits for C with parities past 1 (it xors the number of turns into the phase), of which the chip takes the lowest bit: `strict=False`."""
    from .quack_gemm import TYPES

    vectors = {"rowvec_dtype": TYPES["f32"], "colvec_dtype": TYPES["f32"], "colvec_ndim": 2}
    c_is = {"c_dtype": TYPES["bf16"], "c_major": "n"}
    gemm = quack(f"epilogue-{ping_pong}", ping_pong=ping_pong, alpha_mode=1, beta_mode=1, **c_is, **vectors)
    a, b, c, d = inputs.matrix(M, K), inputs.matrix(N, K), inputs.matrix(M, N), np.full((M, N), np.nan, BF16)
    row, column = inputs.matrix(N, dtype=np.float32), inputs.matrix(M, dtype=np.float32)
    device = Device()
    given = [device.tensor(array) for array in (a, b, d)]
    fused = {"mRowVecBroadcast": device.tensor(row), "mColVecBroadcast": device.tensor(column)}
    launch = gemm.launch(*given, clusters=2, c=device.tensor(c), alpha=0.5, beta=-2.0, **fused)
    result = device.run(launch, seed=seed, strict=not ping_pong)
    expected = 0.5 * product(a, b) - 2.0 * c.astype(np.float64) + row[None, :] + column[:, None]
    assert np.array_equal(d, rounded(expected))
    assert not result.races


@pytest.mark.parametrize("sizes", [(100, 0, 100), (1, 150, 49), (200, 0, 0)])
def test_groups_of_rows_each_with_its_own_weights(
    quack: Callable[..., Any], inputs: Inputs, sizes: tuple[int, int, int]
) -> None:
    """A group may be empty. D's tensor map begins 2**30 rows before D, and coordinates name rows by their distance from their group's end."""
    from .quack_gemm import VarlenArguments

    gemm = quack("groups", varlen_m=True)
    starts = np.array([0, *np.cumsum(sizes)], np.int32)
    a, b, d = inputs.matrix(M, K), inputs.matrix(3, N, K), np.full((M, N), np.nan, BF16)
    device = Device()
    given = [device.tensor(array, batch=False) for array in (a, b, d)]
    rows = VarlenArguments(device.tensor(starts, batch=False), None, None, None)
    result = device.run(gemm.launch(*given, clusters=2, variable=rows))
    parts = [product(a[starts[i] : starts[i + 1]], b[i]) for i in range(3)]
    assert np.array_equal(d, rounded(np.concatenate(parts)))
    assert not result.races


def test_gathered_rows(quack: Callable[..., Any], inputs: Inputs) -> None:
    """A's rows come by cp.async, and wgmma reads them after a wait on the mbarrier with no proxy fence, as CUTLASS's own main loop of that kind
    does (sm90_mma_multistage_gmma_ss_warpspecialized.hpp): `strict=False`.
    """
    from .quack_gemm import VarlenArguments

    gemm = quack("gather", varlen_m=True, gather_A=True)
    starts = np.array([0, 100, 130, M], np.int32)
    order = inputs.random.permutation(M).astype(np.int32)
    a, b, d = inputs.matrix(M, K), inputs.matrix(3, N, K), np.full((M, N), np.nan, BF16)
    device = Device()
    given = [device.tensor(array, batch=False) for array in (a, b, d)]
    rows = VarlenArguments(device.tensor(starts, batch=False), None, device.tensor(order, batch=False), None)
    launch = gemm.launch(*given, clusters=2, variable=rows)
    result = device.run(launch, strict=False)
    taken = a[order]
    parts = [product(taken[starts[i] : starts[i + 1]], b[i]) for i in range(3)]
    assert np.array_equal(d, rounded(np.concatenate(parts)))
    assert not result.races
    found = device.run(launch, strict=True).races
    assert found
    assert all("cp.async" in str(race) and "fence.proxy.async" in race.missing for race in found)


def split_k(
    quack: Callable[..., Any], inputs: Inputs, mode: str, seed: int, edit: Callable[[str], str] = str
) -> tuple[bool, EmulationResult]:
    """Whether D is right, and what was found, of a product whose k is split among three blocks a tile."""
    gemm = quack(f"split-{mode}", split_k=3, split_k_mode=("serial", "parallel").index(mode))
    tiles_m, tiles_n, elements = -(-M // 128), -(-N // 128), 128 * 128
    a, b, d = inputs.matrix(M, K), inputs.matrix(N, K), np.full((M, N), np.nan, BF16)
    turns = np.zeros((1, tiles_m, tiles_n), np.int32)
    partial = np.zeros((1, tiles_m, tiles_n, elements), np.float32)
    device = Device()
    given = [device.tensor(array) for array in (a, b, d)]
    buffers = {
        "split_k_semaphore": device.tensor(turns.transpose(1, 2, 0), batch=False),
        "split_k_workspace": device.tensor(partial.transpose(3, 1, 2, 0), batch=False),
    }
    result = device.run(gemm.launch(*given, clusters=18, **buffers), seed=seed, edit=edit)
    return np.array_equal(d, rounded(product(a, b))), result


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("mode", ["serial", "parallel"])
def test_k_split_among_blocks_that_wait_for_each_other(
    quack: Callable[..., Any], inputs: Inputs, mode: str, seed: int
) -> None:
    """Partial sums meet in global memory, by vector reductions; the last block of a tile finds out from a counter."""
    right, result = split_k(quack, inputs, mode, seed)
    assert right
    assert not result.races


@pytest.mark.parametrize(
    ("mode", "statement", "instead"),
    [
        ("serial", "st.release.gpu", "st.relaxed.gpu"),
        ("serial", "ld.acquire.gpu", "ld.relaxed.gpu"),
        ("serial", "ld.acquire.gpu", "ld.acquire.cta"),
        ("parallel", "ld.acquire.gpu", "ld.relaxed.gpu"),
    ],
)
def test_a_weaker_hand_over_is_a_race(
    quack: Callable[..., Any], inputs: Inputs, mode: str, statement: str, instead: str
) -> None:
    _, result = split_k(quack, inputs, mode, 1, lambda ptx: ptx.replace(statement, instead))
    assert {race.space for race in result.races} == {"global"}
    assert any(race.kind == "read after write" for race in result.races)
