"""A process's first call from a record: the very launch that the whole way makes, or the whole way itself."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen import bind as bind_module
from stridewright.codegen import driver, first_call, launch, launch_arrays, launch_packed, workspace
from stridewright.codegen import gemm as gemm_module
from stridewright.codegen.bind import OperandError
from stridewright.codegen.first_call import RecordedGemm, record_of
from stridewright.kernels.config import GemmConfig
from stridewright.layout.hardware import tensor_map

SMS = 132
SHAPES = [(512, 512, 256), (16, 640, 512), (333, 777, 1504), (1, 64, 64), (128, 256, 4096)]


class FakeCupy:
    """An array of CuPy's kind, or PyTorch's, at an address."""

    def __init__(self, address: int, shape: tuple[int, int], kind: str = "bfloat16") -> None:
        self.data = SimpleNamespace(ptr=address)
        self.shape, self.ndim = shape, 2
        self.dtype = np.dtype(getattr(ml_dtypes, kind, None) or kind)
        self.itemsize = self.dtype.itemsize
        self.strides = (shape[1] * self.itemsize, self.itemsize)
        self.flags = SimpleNamespace(c_contiguous=True)
        self.device = SimpleNamespace(id=0)

    def __len__(self) -> int:
        return self.shape[0]


FakeCupy.__module__, FakeCupy.__name__ = "cupy", "ndarray"


class FakeTorch:
    dtype, shape = "torch.bfloat16", (512, 256)

    def data_ptr(self) -> int:
        return 4096

    def is_contiguous(self) -> bool:
        return True

    def get_device(self) -> int:
        return 0


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[tuple[Any, ...]]]:
    """A GPU of 132 multiprocessors that notes what it is asked to launch: kernel, grid, block, arguments as bytes."""
    launched: list[tuple[Any, ...]] = []
    cupy: Any = SimpleNamespace(
        cuda=SimpleNamespace(
            runtime=SimpleNamespace(getDevice=lambda: 0),
            Device=lambda *given: SimpleNamespace(attributes={"MultiProcessorCount": SMS}),
            get_current_stream=lambda: SimpleNamespace(ptr=0, synchronize=lambda: None),
        ),
    )

    def memory(needed: workspace.Sizes) -> workspace.Memory:
        return workspace.Memory(needed, None, 4096 + needed.bytes)

    def launch_again(about: Any) -> int:
        launched.append(about)
        return 0

    class Packed:
        kept = None

        def __init__(
            self, kernel: Any, grid: Any, block: Any, args: Any, dependent: bool = False, by_stream: Any = None
        ) -> None:
            packed = [np.asarray(launch.pack_argument(value)).tobytes() for value in args]
            for place, value in by_stream(0)[0].items() if by_stream else ():
                packed[place] = np.asarray(launch.pack_argument(value)).tobytes()
            threads = block if isinstance(block, int) else block[0]
            about = (kernel.name, kernel.shared_bytes, kernel.cluster, grid, threads, dependent)
            self.about = (*about, tuple(packed))
            self.calls = {0: (self.about,)}

        def __call__(self, stream: Any = None) -> None:
            launched.append(self.about)

    def encode(given: Any, address: int, name: str = "") -> np.ndarray[Any, Any]:
        numbers = [address, given.dtype, given.rank, *given.shape, *given.strides_bytes, *given.box]
        numbers += [*given.element_strides, given.interleave, given.swizzle, given.l2_promotion, given.oob_fill]
        return np.frombuffer(np.array(numbers, np.int64).tobytes().ljust(128, b"\0"), "V128").copy()

    # The kernels stay where all tests have theirs: none needs to be built twice.
    monkeypatch.setattr(first_call, "_home", lambda: tmp_path / "cache")
    for module in (launch, launch_arrays):
        monkeypatch.setattr(module, "import_cupy", lambda: cupy)
    monkeypatch.setattr(launch, "gpu_available", lambda arch=None: (True, ""))
    monkeypatch.setattr(launch, "several_devices", lambda: False)
    monkeypatch.setattr(launch_packed, "PackedLaunch", Packed)
    monkeypatch.setattr(launch_packed, "launcher", lambda: launch_again)
    monkeypatch.setattr(workspace, "new", memory)
    monkeypatch.setattr(driver, "encode_numbers", encode)
    monkeypatch.setattr(driver, "compute_capability", lambda device=0: (9, 0))
    monkeypatch.setattr(driver, "multiprocessors", lambda device=0: SMS)
    first_call.forget()
    bind_module._encoded.cache_clear()
    bind_module._multiprocessors_of.cache_clear()
    yield launched
    monkeypatch.undo()
    first_call.forget()


def arrays(m: int, n: int, k: int) -> tuple[FakeCupy, FakeCupy, FakeCupy]:
    return FakeCupy(1 << 12, (m, k)), FakeCupy(1 << 26, (n, k)), FakeCupy(1 << 27, (m, n))


def test_map_sizes_are_those_of_the_layouts() -> None:
    assert (driver._MAP_BYTES, driver._MAP_ALIGNMENT) == (tensor_map.MAP_BYTES, tensor_map.MAP_ALIGNMENT)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_record_launches_what_the_whole_way_launches(
    gpu: list[tuple[Any, ...]], shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, out = arrays(*shape)
    assert first_call.gemm(a, b, out) is out
    # Another process: nothing but the disk is left, and the whole way is closed.
    first_call.forget()
    monkeypatch.setattr(first_call, "_whole", None)
    assert first_call.gemm(a, b, out) is out
    assert first_call.gemm(a, b, out) is out
    assert gpu[1] == gpu[0]
    assert gpu[2] == gpu[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"tile_n": 64, "split_kind": "split", "parts": 3},
        {"tile_n": 128, "cluster_m": 2},
        {"tile_m": 64, "tile_n": 32, "consumers": 1, "swap": True},
        {"tile_n": 64, "store": "direct", "specialize": "mnk"},
    ],
)
def test_every_kind_of_configuration_has_the_same_arguments(
    gpu: list[tuple[Any, ...]], changes: dict[str, Any]
) -> None:
    made = Gemm(640, 256, 512, config=GemmConfig().replace(**changes))
    a, b, out = arrays(640, 256, 512)
    record = json.loads(json.dumps(record_of(made, SMS)))
    RecordedGemm((640, 256, 512, "sm_90a"), record, SMS).bind(a, b, out).launch()
    made.bind(a, b, out).launch()
    assert gpu[0] == gpu[1]


def test_a_kernel_with_a_table_leaves_no_record(gpu: list[tuple[Any, ...]], tmp_path: Path) -> None:
    made = Gemm(640, 256, 512, config=GemmConfig().replace(tile_n=64, order="hilbert"))
    first_call._record(made)
    assert not list(tmp_path.rglob("first-*/*"))
    first_call._record(Gemm(640, 256, 512))
    assert [path.name for path in tmp_path.rglob("first-*/*")] == ["sm_90a_640x256x512_132.json"]


@pytest.mark.parametrize("damage", ["digest", "cubin", "no cubin", "format", "torn", "device", "architecture"])
def test_a_record_that_does_not_fit_is_not_used(
    gpu: list[tuple[Any, ...]], damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = (512, 512, 256, "sm_90a")
    first_call.gemm(*arrays(512, 512, 256))
    (path,) = tmp_path.rglob("first-*/*.json")
    record = json.loads(path.read_text(encoding="utf-8"))
    assert first_call._from_record(key) is not None
    if damage == "cubin":
        monkeypatch.setattr(Path, "read_bytes", lambda path: b"another kernel")
    elif damage == "no cubin":
        path.write_text(json.dumps({**record, "cubin": str(tmp_path / "gone.cubin")}), encoding="utf-8")
    elif damage == "torn":
        path.write_text(path.read_text(encoding="utf-8")[:100], encoding="utf-8")
    elif damage == "device":
        monkeypatch.setattr(driver, "multiprocessors", lambda device=0: 114)
    elif damage == "architecture":
        monkeypatch.setattr(driver, "compute_capability", lambda device=0: (10, 0))
    else:
        path.write_text(json.dumps({**record, damage: "other"}), encoding="utf-8")
    assert first_call._from_record(key) is None


def test_the_digest_changes_with_the_package_and_with_tuning(gpu: list[tuple[Any, ...]], tmp_path: Path) -> None:
    before = first_call.package_digest()
    assert first_call.package_digest() == before
    (tmp_path / "cache" / "tuned-1" / "H200" / "580").mkdir(parents=True)
    tuned = first_call.package_digest()
    assert tuned != before
    (tmp_path / "cache" / "tuned-1" / "H200" / "580" / "a.json").write_text("{}", encoding="utf-8")
    assert first_call.package_digest() != tuned


@pytest.mark.parametrize("what", ["strides", "dtype", "device", "shape"])
def test_arrays_that_are_not_dense_take_the_whole_way(gpu: list[tuple[Any, ...]], what: str) -> None:
    first_call.gemm(*arrays(512, 512, 256))
    recorded = first_call._from_record((512, 512, 256, "sm_90a"))
    a, b, out = arrays(512, 512, 256)
    if what == "strides":
        a.strides, a.flags = (1024, 2), SimpleNamespace(c_contiguous=False)
        assert recorded.bind(a, b, out).launch.about != gpu[0]
        return
    if what == "dtype":
        a = FakeCupy(4096, (512, 256), "float16")
    elif what == "device":
        a.device.id = 1
    else:
        a = FakeCupy(4096, (512, 264))
    with pytest.raises((OperandError, launch.LaunchError)):
        recorded.bind(a, b, out)


def test_a_tensor_of_torch_is_dense_where_it_says_so(gpu: list[tuple[Any, ...]]) -> None:
    tensor = FakeTorch()
    assert first_call._dense(tensor, (512, 256))
    assert first_call._address(tensor) == 4096
    assert not first_call._dense(tensor, (256, 512))
    tensor.dtype = "torch.float16"
    assert not first_call._dense(tensor, (512, 256))


def test_a_cubin_that_does_not_load_takes_the_whole_way(
    gpu: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first_call.gemm(*arrays(512, 512, 256))
    recorded = first_call._from_record((512, 512, 256, "sm_90a"))
    broken = dataclasses.replace(recorded)

    def refuse(*given: Any) -> None:
        raise launch.LaunchError("no image")

    monkeypatch.setattr(RecordedGemm, "_arguments", refuse)
    assert broken.bind(*arrays(512, 512, 256)).launch.about == gpu[0]


def test_a_folder_that_cannot_be_written_costs_nothing(
    gpu: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any, **options: Any) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(first_call.tempfile, "mkstemp", refuse)
    a, b, out = arrays(512, 512, 256)
    assert first_call.gemm(a, b, out) is out


def test_after_tuning_a_shape_is_opened_anew(gpu: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    from stridewright.codegen import tune

    first_call.gemm(*arrays(512, 512, 256))
    other = GemmConfig().replace(tile_n=64)
    problem = first_call._whole(512, 512, 256, "sm_90a").problem
    monkeypatch.setattr(
        tune, "tune", lambda *given, **options: SimpleNamespace(config=other.replace(problem=problem), dependent=False)
    )
    made = Gemm(512, 512, 256)
    made.tune(seconds=1)
    assert made.config.tile.n == 64
    assert first_call._calls == {}
    assert first_call._whole.cache_info().currsize == 0


def test_shapes_that_do_not_go_together_are_named() -> None:
    a, b = np.zeros((8, 16), ml_dtypes.bfloat16), np.zeros((16, 24), ml_dtypes.bfloat16)
    with pytest.raises(OperandError, match=r"\(8, 16\).*\(16, 24\).*pass b.T"):
        gemm_module.gemm(a, b)
    with pytest.raises(OperandError, match=r"a has shape \(\)"):
        gemm_module.gemm(3, b)


def test_the_way_to_a_record_does_not_import_the_algebra() -> None:
    code = (
        "import sys, stridewright\n"
        "from stridewright.codegen import first_call, calls, launch, launch_packed, bind, driver, cache\n"
        "stridewright.gemm\n"
        "print([m for m in sys.modules if m.startswith(('stridewright.layout', 'stridewright.kernels'))"
        " or m in ('sympy', 'stridewright.codegen.gemm', 'stridewright.codegen.nvrtc')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_many_threads_make_a_new_shape_s_kernel_once(
    gpu: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they call gemm or one Gemm: one kernel is compiled, and every call is launched."""
    built: list[str] = []
    from stridewright.codegen import build

    real = build.build

    def slowly(source: str, *given: Any, **options: Any) -> Any:
        built.append(source)
        time.sleep(0.05)
        return real(source, *given, **options)

    monkeypatch.setattr(build, "build", slowly)
    monkeypatch.setattr(first_call, "_from_record", lambda key: None)
    made = Gemm(256, 384, 128)

    def at_once(call: Any) -> None:
        barrier = threading.Barrier(8)
        failed: list[BaseException] = []

        def work() -> None:
            try:
                barrier.wait()
                a, b, out = arrays(256, 384, 128)
                assert call(a, b, out=out) is out
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []

    at_once(first_call.gemm)
    assert len(built) == 1
    at_once(made)
    assert len(built) == 2
    assert len(gpu) == 16
    assert len({launched[0] for launched in gpu}) == 1
