"""The program that asks a real GPU: its questions put to the emulator here, to the GPU where there is one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if not (BENCHMARKS / "hopper_probe").is_dir():
        pytest.skip("the benchmarks folder does not lie beside the tests")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module
    for name in [name for name in sys.modules if name.startswith("hopper_probe")]:
        del sys.modules[name]


class EmulatedBuffer:
    address = 1 << 20

    def __init__(self, data: Any) -> None:
        self.array = np.ascontiguousarray(np.zeros(data, np.uint8) if isinstance(data, int) else data).copy()

    def read(self) -> Any:
        return self.array.copy()

    def free(self) -> None:
        pass


class EmulatedModule:
    def __init__(self, source: str) -> None:
        from stridewright.codegen import nvrtc

        self.ptx = nvrtc.compile(source, "sm_90a").ptx

    def launch(self, name: str, threads: int, arguments: Any, shared: int = 0) -> None:
        from stridewright.codegen.emulator import TensorMapArgument, emulate_ptx

        given = [
            argument.array
            if isinstance(argument, EmulatedBuffer)
            else TensorMapArgument(*argument)
            if isinstance(argument, tuple)
            else np.int32(argument)
            for argument in arguments
        ]
        emulate_ptx(self.ptx, name, (1, 1, 1), (threads, 1, 1), given, shared=shared, strict=False)


class EmulatedDevice:
    """The probes' device, played by the emulator; ``encode_tensor_map`` gets the map itself."""

    def load(self, source: str) -> EmulatedModule:
        return EmulatedModule(source)

    def buffer(self, data: Any) -> EmulatedBuffer:
        self.latest = EmulatedBuffer(data)
        return self.latest

    def encode_tensor_map(self, tensor_map: Any, address: int) -> tuple[int, Any]:
        return int(bool(tensor_map.problems(address))), (tensor_map, self.latest.array)


def nvrtc_or_skip() -> None:
    from stridewright.codegen import nvrtc

    try:
        nvrtc.library()
    except nvrtc.NvrtcMissingError as error:
        pytest.skip(str(error))


def faults(records: Any) -> list[dict[str, Any]]:
    """Differences, and errors other than an instruction that the emulator says it does not know."""
    return [r for r in records if r.get("wrong") or ("error" in r and "unknown" not in r["error"])]


def test_ldmatrix_and_stmatrix_probes_find_the_layouts_true(probe: Any) -> None:
    nvrtc_or_skip()
    records = list(probe("hopper_probe.fragments").probe_matrix_moves(EmulatedDevice()))
    assert len(records) == 12
    assert faults(records) == []


def test_mma_sync_probes_find_the_layouts_true(probe: Any) -> None:
    nvrtc_or_skip()
    records = list(probe("hopper_probe.fragments").probe_mma(EmulatedDevice()))
    assert faults(records) == []
    assert sum("wrong" in record for record in records) >= 12


def test_load_probes_find_every_byte(probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc_or_skip()
    copies = probe("hopper_probe.copies")
    plain = [case for case in copies.load_cases() if case[0].interleave == "none"]
    monkeypatch.setattr(copies, "load_cases", lambda: plain[::3])
    monkeypatch.setattr(copies, "driver_arguments", lambda m: m)
    for section in (copies.probe_loads, copies.probe_stores):
        records = list(section(EmulatedDevice()))
        assert len(records) >= 30
        assert faults(records) == []


@pytest.mark.slow
def test_wgmma_probes_find_the_layouts_and_descriptors_true(probe: Any) -> None:
    nvrtc_or_skip()
    fragments, operands = probe("hopper_probe.fragments"), probe("hopper_probe.operands")
    assert faults(fragments.probe_wgmma(EmulatedDevice())) == []
    assert faults(operands.probe_descriptors(EmulatedDevice())) == []


def test_a_wrong_layout_does_show(probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc_or_skip()
    fragments = probe("hopper_probe.fragments")
    straight = fragments.ldmatrix_layout
    monkeypatch.setattr(fragments, "ldmatrix_layout", lambda n, trans: straight(n, not trans))
    records = list(fragments.probe_matrix_moves(EmulatedDevice()))
    assert len(faults(records)) == 6


def test_the_models_predictions_are_those_of_its_patterns(probe: Any) -> None:
    patterns = probe("hopper_probe.patterns")
    found = {(name, op, size): patterns.predicted(op, size, offsets) for name, op, size, offsets in patterns.patterns()}
    assert len(found) >= 25
    assert found["column of floats, pitch 32 words", "ld", 4] == (32, 31)
    assert found["one address", "ld", 16] == (2, 0)
    assert found["bf16x2 epilogue, 128B swizzle", "st", 4] == (1, 0)
    assert found["epilogue, 128B swizzle", "stmatrix", 4] == (4, 0)


def test_ncus_table_is_read(probe: Any) -> None:
    patterns = probe("hopper_probe.patterns")
    names = list(patterns.COUNTERS.values())
    header = ",".join(f'"{name}"' for name in ["ID", "Kernel Name", *names])
    text = f'==PROF== Connected\n{header}\n"","",{",".join(chr(34) * 2 for _ in names)}\n"0","k","64","0","1,024","0"\n'
    assert patterns.parse_ncu(text) == [dict(zip(names, (64.0, 0.0, 1024.0, 0.0), strict=True))]
    assert patterns.parse_ncu("nothing") == []


@pytest.mark.gpu
def test_the_gpu_agrees_with_every_section(probe: Any) -> None:
    device = probe("hopper_probe.device").Device()
    fragments, operands, copies = (probe(f"hopper_probe.{name}") for name in ("fragments", "operands", "copies"))
    for section in (
        fragments.probe_matrix_moves,
        fragments.probe_wgmma,
        fragments.probe_mma,
        operands.probe_descriptors,
        copies.probe_verdicts,
        copies.probe_loads,
    ):
        assert faults(section(device)) == [], section.__name__


@pytest.mark.gpu
def test_cuda_bindings_encode_what_we_would() -> None:
    from stridewright.layout.hardware import TensorMap, encode_image
    from stridewright.layout.hardware.tensor_map_driver import encode_tensor_map

    m = TensorMap("bf16", (4096, 128), (8192,), (64, 128), "128B", l2_promotion="128B")
    assert encode_tensor_map(m, 1 << 20) == encode_image(m, 1 << 20)
