"""Kept launches: found by where arrays lie, never by which object they are; ordered after what other streams do."""

from __future__ import annotations

import ctypes
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen import calls, driver, launch, launch_packed
from stridewright.codegen import gemm as gemm_module
from stridewright.codegen.bind import OperandError
from stridewright.codegen.calls import MOST, Calls


def array_type(module: str, name: str) -> type:
    """A class that looks like another library's array: it has an address, a shape, strides and a type."""

    class Array:
        def __init__(self, address: int, shape: tuple[int, int] = (8, 16), kind: str = "bf16") -> None:
            self.address = address
            self.shape, self.dtype = shape, kind
            self.data = SimpleNamespace(ptr=address)
            self.strides = (shape[1] * 2, 2)

        def data_ptr(self) -> int:
            return self.address

        def stride(self) -> tuple[int, int]:
            return (self.strides[0] // 2, 1)

        def get_device(self) -> int:
            return 0

        def new_empty(self, shape: tuple[int, int]) -> Any:
            return type(self)(9000, shape)

    Array.__module__, Array.__name__ = module, name
    return Array


Cupy, Torch, Other = array_type("cupy", "ndarray"), array_type("torch", "Tensor"), array_type("jaxlib", "ArrayImpl")


class FakeGemm:
    """Counts how often it is bound, and what each launch was bound to."""

    m, n, k = 8, 24, 16
    problem = SimpleNamespace(a="bf16", d="bf16")

    def __init__(self) -> None:
        self.bound: list[tuple[Any, ...]] = []
        self.launched: list[tuple[int, Any]] = []

    def bind(self, a: Any, b: Any, out: Any) -> Any:
        if a.shape[1] != b.shape[1]:
            raise OperandError("b: shape")
        place = (a.address, b.address, out.address)
        self.bound.append(place)
        operands = weakref.ref(a), weakref.ref(b), weakref.ref(out)
        return SimpleNamespace(
            launch=lambda stream: self.launched.append((self.bound.index(place), stream)),
            workspace=None,
            operands=operands,
        )


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Any:
    gemm: Any = FakeGemm()
    streams = SimpleNamespace(cupy=0, torch=0)
    cupy = SimpleNamespace(
        cuda=SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=streams.cupy)),
        empty=lambda shape, dtype: Cupy(8000, shape, dtype),
    )
    monkeypatch.setattr(launch, "import_cupy", lambda: cupy)
    monkeypatch.setattr(calls, "_raw_stream", lambda: lambda device: streams.torch)
    monkeypatch.setattr(calls, "_KEYS", {})
    return SimpleNamespace(gemm=gemm, call=Calls(gemm), streams=streams)


@pytest.mark.parametrize("kind", [Cupy, Torch])
def test_the_same_place_is_bound_once_whichever_object_it_is(kept: Any, kind: Any) -> None:
    for _ in range(3):
        out = kind(300, (8, 24))
        assert kept.call(kind(100), kind(200, (24, 16)), out, None) is out
    assert kept.gemm.bound == [(100, 200, 300)]
    assert kept.gemm.launched == [(0, None if kind is Cupy else 0)] * 3


@pytest.mark.parametrize("what", ["address", "shape", "strides", "dtype", "stride"])
def test_another_address_shape_stride_or_type_is_bound_anew(kept: Any, what: str) -> None:
    kind = Torch if what == "stride" else Cupy
    a, b, out = kind(100), kind(200, (24, 16)), kind(300, (8, 24))
    kept.call(a, b, out, None)
    changed: dict[str, Any] = {"address": 400, "shape": (4, 16), "strides": (64, 2), "dtype": "f16"}
    if what == "stride":
        a.stride = lambda: (32, 1)
    elif what == "address":
        a.data.ptr = a.address = 400
    else:
        setattr(a, what, changed[what])
    kept.call(a, b, out, None)
    assert len(kept.gemm.bound) == 2


def test_a_place_of_cupy_is_not_one_of_torch(kept: Any) -> None:
    kept.call(Cupy(100), Cupy(200, (24, 16)), Cupy(300, (8, 24)), None)
    kept.call(Torch(100), Torch(200, (24, 16)), Torch(300, (8, 24)), None)
    assert len(kept.gemm.bound) == 2


def test_no_array_is_kept_alive(kept: Any) -> None:
    a, b, out = Cupy(100), Cupy(200, (24, 16)), Cupy(300, (8, 24))
    kept.call(a, b, out, None)
    alive = [weakref.ref(array) for array in (a, b, out)]
    del a, b, out
    gc.collect()
    assert [one() for one in alive] == [None] * 3


def test_without_out_there_is_a_new_array_of_the_same_library(kept: Any) -> None:
    for kind, address in ((Cupy, 8000), (Torch, 9000)):
        made = kept.call(kind(100), kind(200, (24, 16)), None, None)
        assert (type(made), made.address, made.shape, made.dtype) == (kind, address, (8, 24), "bf16")


def test_other_libraries_and_mixtures_are_left_to_bind(kept: Any) -> None:
    listed = {
        "other": (Other(1), Other(2), Other(3)),
        "numpy": (np.zeros((8, 16)), np.zeros((24, 16)), None),
        "mixed operands": (Cupy(1), Torch(2), None),
        "mixed out": (Cupy(1), Cupy(2), Torch(3)),
    }
    for a, b, out in listed.values():
        assert kept.call(a, b, out, None) is None
    assert kept.gemm.bound == []


def test_where_torch_works_in_another_stream_dlpack_orders_the_two(kept: Any) -> None:
    a, b, out = Torch(100), Torch(200, (24, 16)), Torch(300, (8, 24))
    kept.streams.torch = 5
    assert kept.call(a, b, out, None) is None
    assert kept.call(a, b, out, "a stream of the caller's") is out  # who names a stream orders it
    kept.streams.cupy = 5
    assert kept.call(a, b, out, None) is out
    assert kept.gemm.launched == [(0, "a stream of the caller's"), (0, 5)]


def test_the_oldest_are_forgotten(kept: Any) -> None:
    for number in range(MOST + 10):
        kept.call(Cupy(16 * number), Cupy(1, (24, 16)), Cupy(2, (8, 24)), None)
    assert len(kept.call._known) == MOST
    kept.call(Cupy(0), Cupy(1, (24, 16)), Cupy(2, (8, 24)), None)
    assert len(kept.gemm.bound) == MOST + 11


def test_what_bind_refuses_is_raised_and_not_kept(kept: Any) -> None:
    for _ in range(2):
        with pytest.raises(OperandError):
            kept.call(Cupy(1), Cupy(2, (24, 32)), Cupy(3, (8, 24)), None)
    assert kept.call._known == {}


def test_a_gemm_uses_its_kept_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Any, ...]] = []

    class Kept:
        def __init__(self, gemm: Gemm) -> None:
            given.append(("made",))

        def __call__(self, *arguments: Any) -> Any:
            given.append(arguments)
            return "result"

    monkeypatch.setattr(gemm_module, "Calls", Kept)
    made = Gemm(8, 24, 16)
    assert made("a", "b", out="out", stream="stream") == "result"
    assert made("a", "b", out="out") == "result"
    assert given == [("made",), ("a", "b", "out", "stream"), ("a", "b", "out", None)]


class Driver:
    """Notes what it is asked to launch."""

    def __init__(self) -> None:
        self.launched: list[tuple[int, int, int]] = []
        self.cuLaunchKernelEx = self._Function(self)

    class _Function:
        argtypes: Any = None

        def __init__(self, owner: Driver) -> None:
            self.owner = owner

        def __call__(self, config: int, function: int, pointers: int, extra: None) -> int:
            given = launch_packed._Config.from_address(config)
            self.owner.launched.append((given.stream or 0, given.grid[0], given.attribute_count))
            return 0


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> tuple[Driver, launch_packed.PackedLaunch, SimpleNamespace]:
    made, current = Driver(), SimpleNamespace(ptr=7)
    cupy = SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: current))
    monkeypatch.setattr(driver, "cuda_driver", lambda: made)
    monkeypatch.setattr(launch_packed, "import_cupy", lambda: cupy)
    kernel: Any = SimpleNamespace(cluster=(1, 1, 1), shared_bytes=64, function=lambda: SimpleNamespace(ptr=11))
    return made, launch_packed.PackedLaunch(kernel, 132, 384, [np.uint32(1)], dependent=True), current


def test_a_packed_launch_goes_to_the_stream_of_the_call(packed: Any) -> None:
    made, bound, current = packed
    bound()
    current.ptr = 8
    bound()
    bound(SimpleNamespace(ptr=9))
    bound(SimpleNamespace(cuda_stream=10))
    bound(0)
    bound()
    assert [stream for stream, _, _ in made.launched] == [7, 8, 9, 10, 0, 8]
    assert {(grid, attributes) for _, grid, attributes in made.launched} == {(132, 1)}


def test_what_the_driver_was_told_of_one_stream_never_changes(packed: Any) -> None:
    _, bound, _ = packed
    bound(1)
    for stream in range(2, 200):
        bound(stream)
    bound(1)
    assert len(bound._calls) <= 64
    held = bound._calls[199]
    assert launch_packed._Config.from_address(held[0][0]).stream == 199
    assert ctypes.addressof(held[1]) == held[0][0]
