"""Placed clusters on the GPU: the probe finds GPCs, and launches in chains, streams and graphs are right and leave their counters zero."""

from __future__ import annotations

import collections
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen import placement, workspace
from stridewright.kernels.config import GemmConfig

pytestmark = pytest.mark.gpu

CONFIGS: dict[str, dict[str, Any]] = {
    "one CTA": {"tile_n": 128},
    "1x2": {"tile_n": 128, "cluster_n": 2},
    "4x1": {"tile_n": 64, "cluster_m": 4, "stages": 3},
    "ping-pong 2x1": {"tile_n": 128, "schedule_kind": "pingpong", "cluster_m": 2},
    "three consumers": {"tile_m": 192, "tile_n": 128, "consumers": 3, "stages": 3},
    "nested": {"tile_n": 128, "order": "nested"},
    "nested 1x2": {"tile_n": 128, "order": "nested", "cluster_n": 2},
    "hilbert": {"tile_n": 128, "order": "hilbert"},
}


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy")


def config_of(name: str) -> GemmConfig:
    return GemmConfig().replace(launch="placed", **CONFIGS[name])


def operands(cupy: Any, m: int, n: int, k: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Whole numbers, and the exact product, rounded once."""
    random = np.random.default_rng(seed)
    a, b = (random.integers(-4, 5, (rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
    exact = (a.astype(np.float32) @ b.astype(np.float32).T).astype(ml_dtypes.bfloat16)
    return cupy.asarray(a), cupy.asarray(b), exact


def assert_equal(cupy: Any, found: Any, exact: Any) -> None:
    np.testing.assert_array_equal(cupy.asnumpy(found).view(np.uint16), exact.view(np.uint16))


def numbers_of_all_streams(cupy: Any) -> list[Any]:
    """What stands where the streams' launches take their numbers, once all have ended."""
    cupy.cuda.Device().synchronize()
    found = []
    for made in workspace._of_streams._made.values():
        for _, memory in made:
            first = workspace.COUNTER_BYTES
            found.append(cupy.asnumpy(memory.held[first : first + workspace.NUMBER_BYTES]))
    return found


def test_gpcs_are_found_and_hold_what_gpcs_hold(cupy: Any, caplog: pytest.LogCaptureFixture) -> None:
    """An H100 or H200 has up to 8 GPCs of up to 18 SMs (NVIDIA H100 whitepaper); pairs of SMs, TPCs, are in one."""
    placement._gpcs_of.cache_clear()
    found = placement.gpcs()
    assert not caplog.records
    sizes = collections.Counter(found)
    sms = int(cupy.cuda.Device().attributes["MultiProcessorCount"])
    assert len(found) >= sms
    assert max(sizes.values()) <= 18
    # An H200 showed pairs of SMs that no larger cluster was ever put on.
    larger = [size for size in sizes.values() if size > 2]
    assert sum(larger) >= sms - 16
    assert len(larger) <= 8
    again = placement._probed(int(cupy.cuda.runtime.getDevice()))
    assert again == found


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("shape", [(1, 8, 8), (130, 136, 72), (1000, 1000, 512), (4096, 2056, 256)], ids=str)
def test_products_are_exact(cupy: Any, name: str, shape: tuple[int, int, int]) -> None:
    a, b, exact = operands(cupy, *shape)
    made = Gemm(*shape, config=config_of(name))
    for _ in range(3):
        out = cupy.full(exact.shape, np.nan, dtype=exact.dtype)
        made(a, b, out=out)
        assert_equal(cupy, out, exact)
    assert not any(numbers.any() for numbers in numbers_of_all_streams(cupy))


@pytest.mark.parametrize("dependent", [False, True])
def test_kernels_of_every_kind_follow_one_another_in_a_stream(cupy: Any, dependent: bool) -> None:
    """Placed ones of other numbers of clusters, shares of K, plain ones: each starts while the one before it ends."""
    m, n, k = 1024, 2048, 512
    a, b, exact = operands(cupy, m, n, k)
    configs = [config_of(name) for name in CONFIGS]
    configs += [
        GemmConfig().replace(tile_n=128),
        GemmConfig().replace(tile_n=128, split_kind="stream"),
        GemmConfig().replace(tile_n=128, split_kind="split", parts=2, reduce="atomic"),
    ]
    workspaces = workspace.Workspaces()
    outs, launches = [], []
    for config in configs:
        out = cupy.full((m, n), np.nan, dtype=ml_dtypes.bfloat16)
        outs.append(out)
        launches.append(Gemm(m, n, k, config=config).bind(a, b, out, dependent=dependent, workspace=workspaces).launch)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    random = np.random.default_rng(0)
    for _ in range(20):
        for out in outs:
            out.fill(np.nan)
        cupy.cuda.Device().synchronize()
        # Some come again before others came once.
        for number in [*random.permutation(len(launches)), *random.integers(0, len(launches), 20)]:
            launches[number](stream)
        stream.synchronize()
        for out in outs:
            assert_equal(cupy, out, exact)
    assert not any(numbers.any() for numbers in numbers_of_all_streams(cupy))


def test_one_gemm_in_two_streams_at_the_same_time(cupy: Any) -> None:
    m, n, k = 512, 1024, 1024
    a, b, exact = operands(cupy, m, n, k)
    made = Gemm(m, n, k, config=config_of("1x2"))
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    outs = [cupy.full((m, n), np.nan, dtype=ml_dtypes.bfloat16) for _ in streams]
    cupy.cuda.Device().synchronize()
    for _ in range(200):
        for stream, out in zip(streams, outs, strict=True):
            made(a, b, out=out, stream=stream)
    for stream, out in zip(streams, outs, strict=True):
        stream.synchronize()
        assert_equal(cupy, out, exact)
    assert not any(numbers.any() for numbers in numbers_of_all_streams(cupy))


@pytest.mark.parametrize("dependent", [False, True])
def test_a_graph_of_launches(cupy: Any, dependent: bool) -> None:
    m, n, k = 1024, 1024, 256
    a, b, exact = operands(cupy, m, n, k)
    workspaces = workspace.Workspaces()
    outs = [cupy.full((m, n), np.nan, dtype=ml_dtypes.bfloat16) for _ in CONFIGS]
    bound = [
        Gemm(m, n, k, config=config_of(name)).bind(a, b, out, dependent=dependent, workspace=workspaces)
        for name, out in zip(CONFIGS, outs, strict=True)
    ]
    stream = cupy.cuda.Stream(non_blocking=True)
    for one in bound:
        one.launch(stream)  # what a stream keeps is made before the capture
    stream.synchronize()
    with stream:
        stream.begin_capture()
        for _ in range(5):
            for one in bound:
                one.launch(stream)
        graph = stream.end_capture()
    for _ in range(10):
        for out in outs:
            out.fill(np.nan)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        graph.launch(stream)
        stream.synchronize()
        for out in outs:
            assert_equal(cupy, out, exact)
    assert not any(numbers.any() for numbers in numbers_of_all_streams(cupy))


def test_an_sm_that_is_held_by_others_does_not_matter(cupy: Any) -> None:
    """A kernel that spins holds SMs of the chip, so that several clusters run on one SM in turn and homes are taken."""
    spin = cupy.RawKernel(
        r"""extern "C" __global__ void spin(long long clocks) {
            const long long begun = clock64();
            while (clock64() - begun < clocks) {}
        }""",
        "spin",
    )
    m, n, k = 1536, 2048, 256
    a, b, exact = operands(cupy, m, n, k)
    shared = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
    spin.max_dynamic_shared_size_bytes = shared
    other, stream = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    for name in ("one CTA", "1x2", "nested"):
        made = Gemm(m, n, k, config=config_of(name))
        out = cupy.full((m, n), np.nan, dtype=ml_dtypes.bfloat16)
        made(a, b, out=out, stream=stream)
        cupy.cuda.Device().synchronize()
        out.fill(np.nan)
        cupy.cuda.Device().synchronize()
        with other:
            spin((60,), (32,), (np.int64(2_000_000),), shared_mem=shared)
        for _ in range(5):
            made(a, b, out=out, stream=stream)
        cupy.cuda.Device().synchronize()
        assert_equal(cupy, out, exact)
    assert not any(numbers.any() for numbers in numbers_of_all_streams(cupy))


@pytest.mark.parametrize("dependent", [False, True])
def test_the_callers_workspace_may_hold_anything(cupy: Any, dependent: bool) -> None:
    m, n, k = 1024, 1024, 256
    a, b, exact = operands(cupy, m, n, k)
    made = Gemm(m, n, k, config=config_of("one CTA"))
    memory = cupy.full(made.workspace_bytes, 255, dtype=np.uint8)
    out = cupy.full((m, n), np.nan, dtype=ml_dtypes.bfloat16)
    bound = made.bind(a, b, out, dependent=dependent, workspace=memory)
    for _ in range(50):
        memory.fill(255)
        bound.launch()
    assert_equal(cupy, out, exact)
    assert not cupy.asnumpy(
        memory[: 4 * (made.division(cupy.cuda.Device().attributes["MultiProcessorCount"]).clusters + 1)]
    ).any()
