"""Speed of light: published figures of devices and of tile orders, and what follows from them for a shape."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from stridewright import Gemm
from stridewright.codegen.speed_of_light import (
    A100,
    B200,
    DEVICES,
    H100,
    H200,
    current,
    device_named,
    floor,
    memory_bound_flops,
    panels_per_window,
    speed_of_light,
    tile_intensity,
    waves,
)
from stridewright.kernels.config import GemmConfig
from stridewright.kernels.orders import order_table

# Data sheets: dense bf16 and fp32 in TFLOP/s.
PEAKS = {"A100": (312, 19.5), "H100": (989, 67), "H200": (989, 67), "B200": (2250, 75)}
# Published beside the H100's and H200's data sheets: operations a byte, of fp32 and of bf16.
RIDGES = {"H100": (20, 295), "H200": (14, 206)}


@pytest.mark.parametrize("name", PEAKS)
def test_peak_is_that_of_the_data_sheet(name: str) -> None:
    tensor, fp32 = PEAKS[name]
    assert DEVICES[name].peak() / 1e12 == pytest.approx(tensor, rel=2e-3)
    assert DEVICES[name].peak("fp32") / 1e12 == pytest.approx(fp32, rel=1e-2)


@pytest.mark.parametrize("name", RIDGES)
def test_ridge_is_the_published_one(name: str) -> None:
    assert (round(DEVICES[name].ridge("fp32")), round(DEVICES[name].ridge("bf16"))) == RIDGES[name]


def test_intensity_of_the_largest_tile_bounds_what_memory_can_feed() -> None:
    assert tile_intensity(128, 256) == pytest.approx(256 / 3)
    assert round(memory_bound_flops(H100, 128, 256) / 1e12) == 286
    assert round(memory_bound_flops(H200, 128, 256) / 1e12) == 410


def test_waves_of_the_published_example() -> None:
    # 4096 cubed in tiles of 128 x 256 on an H100.
    found = waves(32 * 16, 132)
    assert (round(found.count, 2), found.last) == (3.88, 116)
    assert found.used == pytest.approx(0.97, abs=0.005)
    assert waves(132, 132).last == 132
    assert waves(133, 132).last == 1


# Windows of 8 consecutive tiles of an 8 x 8 grid: rows plus columns touched, averaged over the 57 windows.
PANELS = [
    ("row", 1, 9.860),
    ("grouped", 4, 7.018),
    ("grouped", 2, 7.123),
    ("hilbert", 1, 6.667),
    ("serpentine", 2, 6.596),
]


@pytest.mark.parametrize(("order", "group", "panels"), PANELS)
def test_panels_of_each_order(order: str, group: int, panels: float) -> None:
    tiles = order_table(order, 8, 8, group).tolist()
    assert panels_per_window(tiles, 8) == pytest.approx(panels, abs=5e-4)


def test_panels_are_counted_window_by_window() -> None:
    tiles = order_table("hilbert", 7, 5).tolist()
    for window in (1, 3, 8, 35):
        pieces = [tiles[start : start + window] for start in range(len(tiles) - window + 1)]
        each = [len({row for row, _ in piece}) + len({column for _, column in piece}) for piece in pieces]
        assert panels_per_window(tiles, window) == pytest.approx(sum(each) / len(each))
    assert panels_per_window(tiles, 100) == 12  # all of it at once
    with pytest.raises(ValueError, match="none"):
        panels_per_window([], 8)


def test_floor_takes_the_slower_of_multiplying_and_moving() -> None:
    large = floor(H200, 8192, 8192, 8192)
    assert large.bound == "tensor cores"
    assert large.us == pytest.approx(2 * 8192**3 / 989.4e12 * 1e6, rel=1e-3)
    decode = floor(H200, 16, 6144, 4096)
    assert decode.bound == "memory"
    assert decode.us == pytest.approx(2 * (16 * 4096 + 6144 * 4096 + 16 * 6144) / 4.8e12 * 1e6)
    with pytest.raises(ValueError, match="k=0"):
        floor(H200, 1, 1, 0)


def test_bound_changes_at_the_ridge() -> None:
    # A square product's intensity is a third of its side: 206 * 3 = 618.
    assert floor(H200, 616, 616, 616).bound == "memory"
    assert floor(H200, 624, 624, 624).bound == "tensor cores"


def test_report_of_a_plain_configuration() -> None:
    config = GemmConfig().replace(tile_m=128, tile_n=256)
    light = speed_of_light(Gemm(4096, 4096, 4096, config=config), H100)
    assert light.tile_intensity == pytest.approx(85.3, abs=0.05)
    assert (round(light.waves.count, 2), light.waves.last, light.at_once) == (3.88, 116, 132)
    # Four turns where 3.88 would do.
    assert light.quantised_us / light.floor.compute_us == pytest.approx(4 / (512 / 132))
    text = "\n".join(light.lines())
    for shown in ("989 TFLOP/s", "ridge 295", "85.3 flop/byte", "286 TFLOP/s", "3.88 waves, 116 tiles", "97.0%"):
        assert shown in text


@pytest.mark.parametrize(("cluster_m", "cluster_n"), [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("order", ["grouped", "serpentine", "hilbert"])
def test_panels_of_a_cluster_are_those_of_its_tiles(cluster_m: int, cluster_n: int, order: str) -> None:
    config = GemmConfig().replace(tile_n=128, cluster_m=cluster_m, cluster_n=cluster_n, order=order)
    gemm = Gemm(4096, 4096, 1024, config=config)
    light = speed_of_light(gemm, H200)
    blocks = order_table(order, 32 // cluster_m, 32 // cluster_n, config.schedule.group_m).tolist()
    window = light.at_once // (cluster_m * cluster_n)
    each = []
    for start in range(len(blocks) - window + 1):
        tiles = [
            (row * cluster_m + down, column * cluster_n + right)
            for row, column in blocks[start : start + window]
            for down, right in itertools.product(range(cluster_m), range(cluster_n))
        ]
        each.append(len({row for row, _ in tiles}) + len({column for _, column in tiles}))
    assert light.panels == pytest.approx(sum(each) / len(each))


def test_a_divided_k_shortens_the_turns() -> None:
    shape = (256, 256, 65536)
    plain = speed_of_light(Gemm(*shape, config=GemmConfig().replace(tile_n=128)), H200)
    config = GemmConfig().replace(tile_n=128, split_kind="split", parts=30)
    split = speed_of_light(Gemm(*shape, config=config), H200)
    assert plain.at_once == 4
    assert split.at_once == 120
    # 1024 blocks of K in 30 whole shares: 35 of them in the largest.
    assert plain.quantised_us / split.quantised_us == pytest.approx(1024 / 35)


def test_no_time_is_under_the_floor_in_whole_tiles() -> None:
    for shape in ((512, 512, 512), (4096, 4096, 4096), (333, 777, 1504), (16, 6144, 4096), (1, 8192, 8192)):
        light = speed_of_light(Gemm(*shape), H200)
        assert light.quantised_us >= light.floor.compute_us * (1 - 1e-12)


def test_shares_and_record_are_plain_numbers() -> None:
    light = speed_of_light(Gemm(4096, 4096, 4096), H200)
    assert light.shares(2 * light.floor.us) == {"of_floor": 0.5, "of_peak": 0.5}
    record = light.record()
    assert record["floor"]["bound"] == "tensor cores"
    assert record["waves"]["count"] == light.waves.count


def test_devices_are_found_by_what_the_driver_calls_them() -> None:
    assert device_named("NVIDIA H100 80GB HBM3") is H100
    assert device_named("NVIDIA A100-SXM4-80GB") is A100
    assert device_named("NVIDIA B200") is B200
    with pytest.raises(ValueError, match=r"'GeForce'.*A100, H100, H200, B200"):
        device_named("GeForce")


def test_current_device_has_the_sms_that_it_has_here(fake_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from stridewright.codegen import launch

    monkeypatch.setattr(launch, "gpu_available", lambda arch=None: (True, ""))
    fake_gpu.cupy.cuda.runtime.getDeviceProperties = lambda number: {"name": b"NVIDIA H200"}
    fake_gpu.cupy.cuda.Device = lambda *given: SimpleNamespace(
        attributes={"MultiProcessorCount": 114, "L2CacheSize": 60 * 2**20}
    )
    found = current()
    assert (found.name, found.sms, found.l2_bytes) == ("H200", 114, 60 * 2**20)
    assert found.peak() == pytest.approx(H200.peak() * 114 / 132)


def test_without_a_gpu_there_is_no_current_device() -> None:
    from stridewright.codegen.launch import LaunchError, gpu_available

    if gpu_available()[0]:
        pytest.skip("there is a GPU")
    with pytest.raises(LaunchError, match="no usable GPU"):
        current()
