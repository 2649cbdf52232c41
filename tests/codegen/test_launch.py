"""Launching: arguments keep their width, shapes and streams are checked, and no GPU is a reason, never a crash."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stridewright.codegen import driver, launch
from stridewright.codegen.launch import DevicePointer, LaunchError, LoadedKernel, check_launch, pack_argument


class OnDevice:
    """What any library's device array shows of itself."""

    def __init__(self) -> None:
        shown = {"data": (0x7F0000001000, False), "shape": (4,), "typestr": "<f4", "version": 3}
        self.__cuda_array_interface__ = shown


class Function:
    """Stands in for CuPy's Function: remembers its calls."""

    ptr = 1234

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *given: Any) -> None:
        self.calls.append(given)


class Kernel:
    """Stands in for CuPy's RawKernel."""

    def __init__(self) -> None:
        self.kernel = Function()
        self.shared_size_bytes = 64
        self.max_dynamic_shared_size_bytes = -1


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A CuPy with one kernel, and a driver with one Hopper."""
    kernel = Kernel()
    made = SimpleNamespace(kernel=kernel, paths=[], current="current stream")

    class RawModule:
        def __init__(self, *, path: str) -> None:
            with open(path, "rb") as file:
                made.paths.append((path, file.read()))

        def get_function(self, name: str) -> Kernel:
            if name != "k":
                raise RuntimeError("CUDA_ERROR_NOT_FOUND: named symbol not found")
            return kernel

    module = ModuleType("cupy")
    module.__version__ = "14.2.0"  # type: ignore[attr-defined]
    module.RawModule = RawModule  # type: ignore[attr-defined]
    module.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        runtime=SimpleNamespace(getDevice=lambda: 0),
        get_current_stream=lambda: made.current,
        Stream=SimpleNamespace(from_external=lambda protocol: ("external", protocol.__cuda_stream__())),
    )
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr(driver, "device_count", lambda: 1)
    monkeypatch.setattr(driver, "compute_capability", lambda device=0: (9, 0))
    monkeypatch.setattr(driver, "shared_bytes_limit", lambda device=0: 232448)
    made.module = module
    return made


@pytest.mark.parametrize(
    "value", [np.uint32(7), np.int64(-1), np.float32(1.5), np.float16(2), np.bool_(True), np.uint8(255)]
)
def test_numpy_scalars_keep_their_width(value: np.generic) -> None:
    packed = pack_argument(value)
    assert packed.dtype == value.dtype
    assert packed == value


def test_pointers_of_every_kind_become_eight_bytes() -> None:
    for value, address in ((DevicePointer(0x7F0000000100), 0x7F0000000100), (OnDevice(), 0x7F0000001000), (None, 0)):
        packed = pack_argument(value)
        assert packed.dtype == np.uint64
        assert int(packed) == address


def test_encoded_tensor_map_goes_by_value() -> None:
    encoded = np.zeros(128, np.uint8).view(np.dtype((np.void, 128)))
    assert pack_argument(encoded) is encoded


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (1.5, r"np\.float32"),
        (3, r"np\.uint32"),
        (True, "no width"),
        (np.zeros(4, np.float32), r"cupy\.asarray"),
        (np.zeros(1, np.float32), r"cupy\.asarray"),
        ("text", "str cannot be passed"),
        (np.datetime64("2026-01-01"), "no CUDA counterpart"),
    ],
)
def test_arguments_without_a_width_are_refused_with_advice(value: Any, advice: str) -> None:
    with pytest.raises(TypeError, match=advice) as caught:
        pack_argument(value, 3)
    assert "argument 3" in str(caught.value)


def test_grid_and_block_are_filled_up() -> None:
    assert check_launch((132,), (128, 3)) == ((132, 1, 1), (128, 3, 1))
    assert check_launch((4, 2), 384, (2, 1, 1)) == ((4, 2, 1), (384, 1, 1))


@pytest.mark.parametrize(
    ("grid", "block", "cluster", "said"),
    [
        (0, 128, (1, 1, 1), "grid=0"),
        (-1, 128, (1, 1, 1), "grid=-1"),
        ((1, 70000), 128, (1, 1, 1), "65535"),
        (1, 2048, (1, 1, 1), "block=2048"),
        (1, (512, 4), (1, 1, 1), "2048 threads"),
        ((), 128, (1, 1, 1), "grid="),
        ((1, 1, 1, 1), 128, (1, 1, 1), "grid="),
        (3, 128, (2, 1, 1), r"nearest \(4, 1, 1\)"),
        (32, 128, (32, 1, 1), "at most 16 blocks"),
    ],
)
def test_impossible_launches_are_refused(grid: Any, block: Any, cluster: Any, said: str) -> None:
    with pytest.raises(LaunchError, match=said):
        check_launch(grid, block, cluster)


def test_launch_hands_everything_to_cupy(cupy: SimpleNamespace) -> None:
    kernel = LoadedKernel(b"cubin bytes", "k", shared_bytes=200_000)
    kernel(132, 384, (np.uint32(1), DevicePointer(256)))
    kernel(1, 384, (), stream=77)
    first, second = cupy.kernel.kernel.calls
    assert first == ((132, 1, 1), (384, 1, 1), (np.uint32(1), np.uint64(256)), 200_000, "current stream")
    assert second[4] == ("external", (0, 77))
    assert cupy.kernel.max_dynamic_shared_size_bytes == 200_000
    ((path, data),) = cupy.paths
    assert data == b"cubin bytes"
    assert not launch.Path(path).exists()


def test_cubin_in_a_file_is_loaded_from_there(cupy: SimpleNamespace, tmp_path: Any) -> None:
    (tmp_path / "kernel.cubin").write_bytes(b"on disk")
    LoadedKernel(tmp_path / "kernel.cubin", "k")(1, 32, ())
    assert cupy.paths == [(str(tmp_path / "kernel.cubin"), b"on disk")]
    assert (tmp_path / "kernel.cubin").exists()


def test_too_much_shared_memory_is_refused_with_the_limit(cupy: SimpleNamespace) -> None:
    with pytest.raises(LaunchError, match=r"shared_bytes=232400 and 64 static ones: device 0 allows 232448 bytes"):
        LoadedKernel(b"", "k", shared_bytes=232_400)(1, 32, ())
    assert cupy.kernel.kernel.calls == []


def test_kernel_of_another_name_is_a_launch_error(cupy: SimpleNamespace) -> None:
    with pytest.raises(LaunchError, match=r"kernel 'other' could not be loaded.*NOT_FOUND.*sm_90a"):
        LoadedKernel(b"", "other")(1, 32, ())


def test_wrong_argument_launches_nothing(cupy: SimpleNamespace) -> None:
    with pytest.raises(TypeError, match="argument 1"):
        LoadedKernel(b"", "k")(1, 32, (np.uint32(1), 2.0))
    assert cupy.kernel.kernel.calls == []


def test_streams_of_other_libraries_are_understood() -> None:
    torch_like = SimpleNamespace(cuda_stream=11)
    protocol = SimpleNamespace(__cuda_stream__=lambda: (0, 12))
    assert [launch.stream_address(s) for s in (torch_like, protocol, SimpleNamespace(ptr=13), 14)] == [11, 12, 13, 14]
    for wrong in ("default", 1.5, True, object()):
        with pytest.raises(TypeError, match="is no stream"):
            launch.stream_address(wrong)


def test_gpu_of_the_right_architecture_is_available(cupy: SimpleNamespace) -> None:
    assert launch.gpu_available() == (True, "device 0 of compute capability 9.0 (sm_90a)")
    assert launch.gpu_available("sm_90a")[0]
    usable, reason = launch.gpu_available("sm_100a")
    assert not usable
    assert "runs sm_90a, not sm_100a" in reason
    assert launch.device_arch() == "sm_90a"


def test_gpu_without_kernels_for_it_is_a_reason(cupy: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "compute_capability", lambda device=0: (8, 0))
    usable, reason = launch.gpu_available()
    assert not usable
    assert "compute capability 8.0" in reason
    with pytest.raises(LaunchError, match=r"8\.0"):
        launch.device_arch()


def test_missing_cupy_names_the_pip_command(cupy: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    usable, reason = launch.gpu_available()
    assert not usable
    assert "pip install 'stridewright[cuda13]'" in reason


def test_old_cupy_is_refused_before_it_can_crash(cupy: SimpleNamespace) -> None:
    cupy.module.__version__ = "13.3.0"
    with pytest.raises(LaunchError, match=r"CuPy 13\.3\.0 is too old"):
        launch.import_cupy()


def test_no_device_and_no_driver_are_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "device_count", lambda: 0)
    assert launch.gpu_available() == (False, "the NVIDIA driver sees no device")

    def missing() -> int:
        raise driver.DriverError("no NVIDIA driver is installed (libcuda.so.1 was not found)")

    monkeypatch.setattr(driver, "device_count", missing)
    assert launch.gpu_available() == (False, "no NVIDIA driver is installed (libcuda.so.1 was not found)")


def test_asking_for_a_gpu_does_not_import_cupy_where_there_is_no_driver() -> None:
    code = (
        "import sys; from stridewright.codegen import driver, launch;"
        "driver.device_count = lambda: 0; launch.gpu_available(); sys.exit('cupy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
