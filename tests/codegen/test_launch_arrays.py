"""Arrays in and out: strides decide the major, formats are named, wrong arrays are refused, types come back."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewright.codegen import launch_arrays
from stridewright.codegen.launch import LaunchError
from stridewright.codegen.launch_arrays import adopt, format_of, give_back, majors


class FakeArray:
    """A CuPy array without a GPU: numpy's, with an address and a device."""

    def __init__(self, host: np.ndarray[Any, Any], device: int = 0) -> None:
        self.host = host
        self.data = SimpleNamespace(ptr=host.ctypes.data)
        self.device = SimpleNamespace(id=device)
        self.dtype, self.shape, self.strides, self.ndim, self.itemsize = (
            host.dtype,
            host.shape,
            host.strides,
            host.ndim,
            host.itemsize,
        )


FakeArray.__module__ = "cupy"


class Foreign:
    """An array of another library that speaks DLPack."""

    def __init__(self, host: np.ndarray[Any, Any], kind: int = 2) -> None:
        self.host, self.kind, self.dtype = host, kind, host.dtype

    def __dlpack__(self, **given: Any) -> Any:
        return self.host

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.kind, 0)


Foreign.__module__ = "otherlib.arrays"


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("cupy")
    module.__version__ = "14.2.0"  # type: ignore[attr-defined]
    module.asarray = FakeArray  # type: ignore[attr-defined]
    module.asnumpy = lambda array: array.host  # type: ignore[attr-defined]
    module.from_dlpack = lambda array: FakeArray(array.__dlpack__())  # type: ignore[attr-defined]
    waited: list[str] = []
    stream = SimpleNamespace(ptr=0, synchronize=lambda: waited.append("current"))
    module.waited = waited  # type: ignore[attr-defined]
    module.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        runtime=SimpleNamespace(getDevice=lambda: 0), get_current_stream=lambda: stream
    )
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


@given(rows=st.integers(1, 9), columns=st.integers(1, 9), pad=st.integers(0, 3), transposed=st.booleans())
def test_major_is_the_dimension_whose_neighbours_touch(rows: int, columns: int, pad: int, transposed: bool) -> None:
    base = np.zeros((columns if transposed else rows, (rows if transposed else columns) + pad), np.float32)
    view = base[:, : rows if transposed else columns]
    matrix = view.T if transposed else view
    found = majors(matrix.shape, tuple(stride // 4 for stride in matrix.strides))
    assert ("mn" if transposed else "k") in found
    if rows > 1 and columns > 1:
        assert len(found) == 1


@given(step=st.integers(2, 4), rows=st.integers(2, 5), columns=st.integers(2, 5))
def test_every_second_column_has_no_major(step: int, rows: int, columns: int) -> None:
    matrix = np.zeros((rows, columns * step), np.float32)[:, ::step]
    assert majors(matrix.shape, tuple(stride // 4 for stride in matrix.strides)) == ()


def test_overlapping_and_reversed_rows_have_no_major() -> None:
    assert majors((4, 8), (0, 1)) == ()
    assert majors((4, 8), (-8, 1)) == ()
    assert majors((4, 8), (4, 1)) == ()


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (ml_dtypes.bfloat16, "bf16"),
        (np.float16, "f16"),
        (np.float32, "f32"),
        (ml_dtypes.float8_e4m3fn, "e4m3"),
        (ml_dtypes.float8_e5m2, "e5m2"),
        (np.int8, "s8"),
    ],
)
def test_formats_have_their_names(dtype: Any, name: str) -> None:
    assert format_of(np.dtype(dtype)) == name


@pytest.mark.parametrize("dtype", [np.complex64, np.bool_, ml_dtypes.float8_e4m3fnuz, "U4"])
def test_other_formats_are_refused_by_name(dtype: Any) -> None:
    with pytest.raises(TypeError, match="none that kernels compute with"):
        format_of(np.dtype(dtype))


def test_transposed_view_is_known_by_its_strides(cupy: ModuleType) -> None:
    base = np.zeros((6, 4), ml_dtypes.bfloat16)
    taken = adopt(FakeArray(base.T), "a")
    assert (taken.shape, taken.strides, taken.dtype, taken.family) == ((4, 6), (1, 4), "bf16", "cupy")
    assert taken.majors == ("mn",)
    assert taken.address == base.ctypes.data


def test_numpy_arrays_go_to_the_device_and_come_back(cupy: ModuleType) -> None:
    taken = adopt(np.ones((2, 3), np.float32), "a")
    assert taken.family == "numpy"
    assert isinstance(taken.array, FakeArray)
    assert np.array_equal(give_back(taken.array, "numpy"), np.ones((2, 3), np.float32))


def test_fp8_travels_as_bytes_with_its_name(cupy: ModuleType) -> None:
    host = np.ones((2, 16), ml_dtypes.float8_e4m3fn)
    assert adopt(host, "a").dtype == "e4m3"
    assert adopt(host.view(np.uint8), "a", dtype="e5m2").dtype == "e5m2"
    with pytest.raises(TypeError, match="is e4m3, and e5m2 was asked for"):
        adopt(host, "a", dtype="e5m2")


def test_foreign_device_array_comes_by_dlpack_and_goes_back(cupy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("otherlib")
    other.from_dlpack = lambda array: ("otherlib array", array)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "otherlib", other)
    taken = adopt(Foreign(np.ones((2, 3), np.float16)), "b")
    assert (taken.family, taken.dtype) == ("otherlib", "f16")
    assert give_back(taken.array, taken.family) == ("otherlib array", taken.array)
    assert give_back(taken.array, "cupy") is taken.array
    with pytest.raises(TypeError, match="no from_dlpack"):
        give_back(taken.array, "unheard")


@pytest.mark.parametrize(
    ("array", "error", "said"),
    [
        (Foreign(np.ones((2, 3), np.float16), kind=1), TypeError, r"a: this Foreign lies in host memory"),
        ([[1.0, 2.0]], TypeError, "a: list is no array"),
        (np.ones(3, np.float32), LaunchError, r"shape \(3,\); a matrix"),
        (np.ones((2, 3, 4), np.float32), LaunchError, "two dimensions"),
        (np.ones((2, 3), np.complex64), TypeError, "complex64"),
        (
            FakeArray(np.ones((2, 3), np.float32), device=1),
            LaunchError,
            "lies on device 1, and the launch is on device 0",
        ),
    ],
)
def test_wrong_arrays_are_refused_by_name(cupy: ModuleType, array: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        adopt(array, "a")


def test_dtype_that_was_not_asked_for_is_refused(cupy: ModuleType) -> None:
    with pytest.raises(TypeError, match="a: is f32, and bf16 was asked for"):
        adopt(np.ones((2, 3), np.float32), "a", dtype="bf16")


def test_dlpack_failure_keeps_its_reason(cupy: ModuleType) -> None:
    def refuse(array: Any) -> Any:
        raise BufferError("unsupported dtype")

    cupy.from_dlpack = refuse  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"through DLPack \(unsupported dtype\)"):
        adopt(Foreign(np.ones((2, 3), np.float16)), "a")


def test_family_is_the_library_of_the_type() -> None:
    assert launch_arrays.family_of(np.zeros(1)) == "numpy"
    assert launch_arrays.family_of(Foreign(np.zeros(1))) == "otherlib"
