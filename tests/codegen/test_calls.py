"""Kept launches: found by where arrays lie, or by whose they are as long as they live; on the arrays' device, in its stream."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen import calls as calls_module
from stridewright.codegen import driver, launch, launch_packed
from stridewright.codegen import gemm as gemm_module
from stridewright.codegen.bind import OperandError
from stridewright.codegen.calls import MOST, Calls, Table

from .fake_devices import BF16, Array, Machine, Tensor, kernel_of, machine

__all__ = ["machine"]
A, B, D = (8, 16), (24, 16), (8, 24)


class FakeGemm:
    """Binds launches whose grid is a number of their own, and checks what they are bound to."""

    m, n, k = 8, 24, 16
    problem = SimpleNamespace(a="bf16", d="bf16")

    def __init__(self) -> None:
        self.bound: list[tuple[int, int, int]] = []
        self.alive: list[Any] = []

    def bind(self, a: Any, b: Any, out: Any, workspace: Any) -> Any:
        for name, array, shape in (("a", a, A), ("b", b, B), ("out", out, D)):
            if tuple(array.shape) != shape:
                raise OperandError(f"{name}: shape")
            if "bfloat16" not in str(array.dtype):
                raise OperandError(f"{name}: dtype")
        self.bound.append((address(a), address(b), address(out)))
        made = launch_packed.PackedLaunch(kernel_of(), len(self.bound), 384, [np.uint32(1)], dependent=True)
        return SimpleNamespace(launch=made, operands=[weakref.ref(array) for array in (a, b, out)])


def address(array: Any) -> int:
    return int(array.data_ptr() if isinstance(array, Tensor) else array.data.ptr)


def three(kind: Any = Array, device: int = 0) -> tuple[Any, Any, Any]:
    return tuple(kind(16 * place, shape, device=device) for place, shape in enumerate((A, B, D), 1))  # type: ignore[return-value]


@pytest.fixture
def kept(machine: Machine) -> Any:
    gemm = FakeGemm()
    return SimpleNamespace(gemm=gemm, call=Calls(gemm), machine=machine)


def grids(kept: Any) -> list[int]:
    """Which of the bound launches were launched."""
    return [one.grid for one in kept.machine.launched]


@pytest.mark.parametrize("kind", [Array, Tensor])
def test_the_same_place_is_bound_once_whichever_object_it_is(kept: Any, kind: Any) -> None:
    for _ in range(3):
        a, b, out = three(kind)
        for _ in range(2):
            assert kept.call(a, b, out, None) is out
    assert kept.gemm.bound == [(16, 32, 48)]
    assert grids(kept) == [1] * 6


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("what", ["address", "strides", "shape", "dtype", "rank"])
def test_another_address_shape_stride_or_type_is_not_the_same_place(
    kept: Any, what: str, which: int, same: bool
) -> None:
    """The same objects, with a new shape, or new ones in their place."""
    arrays = list(three())
    for _ in range(2):
        kept.call(*arrays, None)
    shape = arrays[which].shape
    changed = arrays[which] if same else Array(16 * (which + 1), shape)
    if what == "address":
        changed = Array(4096, shape)
    elif what == "strides":
        changed = Array(16 * (which + 1), shape).lying((64, 2))
    elif what == "dtype":
        changed = Array(16 * (which + 1), shape, np.float16)
    elif what == "shape":
        changed.shape = shape[::-1]
    else:
        changed.shape = (shape[0], shape[1] // 2, 2)
    arrays[which] = changed
    if what in ("address", "strides"):
        kept.call(*arrays, None)
        assert grids(kept) == [1, 1, 2]
    else:
        for _ in range(2):
            with pytest.raises(OperandError):
                kept.call(*arrays, None)
        assert grids(kept) == [1, 1]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_tensor_that_changes_in_place_is_not_the_same_place(kept: Any, which: int) -> None:
    tensors = three(Tensor)
    for _ in range(2):
        kept.call(*tensors, None)
    tensors[which].address = 4096
    kept.call(*tensors, None)
    tensors[which].steps = (64, 1)
    kept.call(*tensors, None)
    assert grids(kept) == [1, 1, 2, 3]
    tensors[which].dtype = "torch.float16"
    with pytest.raises(OperandError, match="dtype"):
        kept.call(*tensors, None)
    tensors[which].dtype, tensors[which].shape = "torch.bfloat16", tensors[which].shape[::-1]
    with pytest.raises(OperandError, match="shape"):
        kept.call(*tensors, None)


def test_an_identity_that_another_array_has_now_is_not_trusted(kept: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, out = three()
    kept.call(a, b, out, None)
    kept.call(a, b, out, None)
    recent = kept.call.table._recent
    other = Array(4096, D)
    recent[id(other)] = recent[id(out)]  # as if ``out`` were gone and ``other`` lay where it was
    kept.call(a, b, other, None)
    assert grids(kept) == [1, 1, 2]


def test_a_place_of_cupy_is_not_one_of_torch(kept: Any) -> None:
    kept.call(*three(), None)
    kept.call(*three(Tensor), None)
    assert len(kept.gemm.bound) == 2


def test_no_array_is_kept_alive(kept: Any) -> None:
    arrays = three()
    for _ in range(3):
        kept.call(*arrays, None)
    alive = [weakref.ref(array) for array in arrays]
    del arrays
    gc.collect()
    assert [one() for one in alive] == [None] * 3


def test_without_out_there_is_a_new_array_of_the_same_library(kept: Any) -> None:
    made = kept.call(*three()[:2], None, None)
    assert (type(made), made.shape, made.dtype) == (Array, D, BF16)
    made = kept.call(*three(Tensor)[:2], None, None)
    assert (type(made), made.shape, made.dtype) == (Tensor, D, "torch.bfloat16")


def test_a_new_result_is_of_the_memory_of_the_stream_that_writes_it(kept: Any) -> None:
    kept.machine.streams[0] = 3
    kept.call(*three()[:2], None, None)
    kept.call(*three()[:2], None, 9)
    assert kept.machine.allocated == [3, 9]
    assert [one.stream for one in kept.machine.launched] == [3, 9]
    assert kept.machine.streams[0] == 3


def test_other_libraries_and_mixtures_are_left_to_bind(kept: Any) -> None:
    class Other(Array):
        """Of another module, but a CuPy array all the same."""

    kept.call(Other(16, A), Other(32, B), Other(48, D), None)
    assert grids(kept) == [1]
    a, b, out = three()
    x, y, z = three(Tensor)
    numbers = np.zeros(A), np.zeros(B), np.zeros(D)
    for given in ((*numbers[:2], None), numbers, (a, y, None), (a, b, z), (x, y, out), (a, numbers[1], out), (3, 4, 5)):
        assert kept.call(*given, None) is None
        assert kept.call.table.launch(*given, None) is None
    assert len(kept.gemm.bound) == 1


def test_a_launch_goes_to_the_stream_that_is_current_or_named(kept: Any) -> None:
    arrays = three()
    kept.call(*arrays, None)
    kept.machine.streams[0] = 7
    kept.call(*arrays, None)
    for stream in (8, SimpleNamespace(ptr=9), SimpleNamespace(cuda_stream=10), 0):
        kept.call(*arrays, stream)
    assert [one.stream for one in kept.machine.launched] == [0, 7, 8, 9, 10, 0]
    with pytest.raises(TypeError, match="is no stream"):
        kept.call(*arrays, "a stream")


def test_tensors_of_torch_are_multiplied_in_torch_s_stream(kept: Any) -> None:
    tensors = three(Tensor)
    kept.machine.torch_streams[0] = 5
    kept.call(*tensors, None)
    kept.machine.torch_streams[0] = 6
    kept.call(*tensors, None)
    kept.call(*tensors, 7)
    assert [one.stream for one in kept.machine.launched] == [5, 6, 7]


@pytest.mark.parametrize("machine", [2], indirect=True)
@pytest.mark.parametrize("kind", [Array, Tensor])
def test_arrays_of_another_device_are_multiplied_there(kept: Any, kind: Any) -> None:
    machine = kept.machine
    machine.streams.update({0: 20, 1: 21})
    machine.torch_streams.update({0: 20, 1: 21})
    first, second = three(kind), three(kind, device=1)  # the same addresses, one device's after the other's
    made = SimpleNamespace(_calls=None, _require_gpu=lambda: None, bind=kept.gemm.bind, problem=kept.gemm.problem)
    for arrays in (first, second, first, second, second):
        assert calls_module.call(made, *arrays, None) is arrays[2]  # type: ignore[arg-type]
        assert made._launch(*arrays, None) is arrays[2]
    assert [(one.device, one.function, one.stream) for one in machine.launched] == (
        [(0, 100, 20)] * 2 + [(1, 101, 21)] * 2 + [(0, 100, 20)] * 2 + [(1, 101, 21)] * 4
    )
    assert machine.device == 0
    assert len(kept.gemm.bound) == 2
    machine.device = 1
    made._launch(*first, None)
    assert (machine.launched[-1].device, machine.device) == (0, 1)


def test_the_oldest_are_forgotten(kept: Any) -> None:
    b, out = Array(32, B), Array(48, D)
    for number in range(MOST + 10):
        kept.call(Array(4096 + 16 * number, A), b, out, None)
    assert len(kept.call.table) == MOST
    assert len(kept.call.table._recent) <= MOST
    kept.call(Array(4096, A), b, out, None)
    assert len(kept.gemm.bound) == MOST + 11


def test_what_bind_refuses_is_raised_and_not_kept(kept: Any) -> None:
    for _ in range(2):
        with pytest.raises(OperandError):
            kept.call(Array(16, A), Array(32, (24, 32)), Array(48, D), None)
    assert len(kept.call.table) == 0


def test_what_the_driver_refuses_is_raised(kept: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(status: int, call: str) -> None:
        if status:
            raise driver.DriverError(f"{call}: {status}")

    monkeypatch.setattr(driver, "check", refuse)
    arrays = three()
    kept.call(*arrays, None)
    kept.machine.status = 700
    for _ in range(2):
        with pytest.raises(driver.DriverError, match="cuLaunchKernelEx: 700"):
            kept.call(*arrays, None)


def test_threads_launch_each_into_its_own_stream(kept: Any) -> None:
    """However the threads take turns, a launch has the stream and the arrays of its own call."""
    sets = [
        tuple(Array(4096 * (number + 1) + 16 * place, shape) for place, shape in enumerate((A, B, D)))
        for number in range(4)
    ]
    barrier = threading.Barrier(8)
    expected: list[tuple[int, int]] = []
    lock = threading.Lock()
    before = sys.getswitchinterval()

    def work(number: int) -> None:
        barrier.wait()
        for turn in range(200):
            arrays = sets[(number + turn) % 4]
            kept.call(*arrays, 1000 + number)
            with lock:
                expected.append((address(arrays[2]), 1000 + number))

    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    grid_of = {place[2]: grid for grid, place in enumerate(kept.gemm.bound, 1)}
    found = [({grid: out for out, grid in grid_of.items()}.get(one.grid), one.stream) for one in kept.machine.launched]
    known = {place[2] for place in kept.gemm.bound}
    assert known == {address(arrays[2]) for arrays in sets}
    assert len(found) == 1600
    for stream in range(1000, 1008):
        assert sum(one[1] == stream for one in found) == 200


def test_a_kept_call_costs_few_calls_of_python(kept: Any) -> None:
    """Time is the machine's; how many functions are entered is the program's."""
    made = Gemm(8, 24, 16)
    made._launch = kept.call.table.launch
    arrays = three()
    kept.call(*arrays, None)
    made(arrays[0], arrays[1], out=arrays[2])
    entered: list[str] = []
    own = {"launch", "__call__"}

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(calls_module.__file__.rpartition("/")[0]):
            entered.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        made(arrays[0], arrays[1], out=arrays[2])
    finally:
        sys.setprofile(None)
    assert set(entered) <= own
    assert len(entered) == 2


def test_a_gemm_uses_its_kept_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Any, ...]] = []

    class Kept:
        def __init__(self, gemm: Gemm) -> None:
            given.append(("made",))
            self.table = SimpleNamespace(launch=self)

        def __call__(self, *arguments: Any) -> Any:
            given.append(arguments)
            return arguments[2]

    monkeypatch.setattr(calls_module, "Calls", Kept)
    made = Gemm(8, 24, 16)
    monkeypatch.setattr(made, "_require_gpu", lambda: None)
    assert made("a", "b", out="out", stream="stream") == "out"
    assert made("a", "b", out="out") == "out"
    assert given == [("made",), ("a", "b", "out", "stream"), ("a", "b", "out", None)]
    assert gemm_module.call is calls_module.call


def test_without_a_gpu_a_call_says_how_to_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "gpu_available", lambda arch=None: (False, "the NVIDIA driver sees no device"))
    made = Gemm(8, 24, 16)
    for out in (None, np.zeros((8, 24), BF16)):
        with pytest.raises(launch.LaunchError, match=r"sees no device\. Gemm\.emulate\(a, b\) runs the same PTX"):
            made(np.zeros((8, 16), BF16), np.zeros((24, 16), BF16), out=out)


def packed(machine: Machine, **options: Any) -> launch_packed.PackedLaunch:
    return launch_packed.PackedLaunch(kernel_of(), 132, 384, [np.uint32(1), np.uint64(2)], **options)


def test_a_packed_launch_goes_to_the_stream_of_the_call(machine: Machine) -> None:
    bound = packed(machine, dependent=True)
    machine.streams[0] = 7
    bound()
    machine.streams[0] = 8
    bound()
    bound(SimpleNamespace(ptr=9))
    bound(SimpleNamespace(cuda_stream=10))
    bound(0)
    bound()
    assert [one.stream for one in machine.launched] == [7, 8, 9, 10, 0, 8]
    assert {(one.grid, one.dependent) for one in machine.launched} == {(132, True)}


@pytest.mark.parametrize("machine", [2], indirect=True)
def test_a_packed_launch_stays_on_its_device(machine: Machine) -> None:
    machine.streams.update({0: 20, 1: 21})
    machine.device = 1
    bound = packed(machine)
    machine.device = 0
    bound()
    bound(33)
    assert [(one.device, one.function, one.stream) for one in machine.launched] == [(1, 101, 21), (1, 101, 33)]
    assert machine.device == 0


def test_what_the_driver_was_told_of_one_stream_never_changes(machine: Machine) -> None:
    bound = packed(machine)
    first = bound.calls[1]
    for stream in range(2, 200):
        bound(stream)
    bound(1)
    assert len(bound.calls) <= 64
    assert bound.calls[199][0]._obj.stream == 199
    assert first[0]._obj.stream == 1


def test_the_driver_is_handed_pointers_to_what_was_packed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through ctypes itself, as the driver is called."""
    seen: list[tuple[Any, ...]] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, *(ctypes.c_void_p,) * 4)
    def receive(config: int, function: int, pointers: int, extra: int | None) -> int:
        given = launch_packed._Config.from_address(config)
        places = (ctypes.c_void_p * 3).from_address(pointers)
        values = (
            ctypes.c_uint32.from_address(places[0]).value,
            ctypes.c_uint64.from_address(places[1]).value,
            ctypes.string_at(places[2], 128),
        )
        sizes = (*given.grid, *given.block, given.shared_bytes, given.stream, given.attribute_count)
        seen.append((sizes, given.attributes[0].id, given.attributes[0].value, function, values, extra))
        return 0

    address = ctypes.cast(receive, ctypes.c_void_p).value
    assert address is not None
    monkeypatch.setattr(launch_packed, "launcher", lambda: ctypes.CFUNCTYPE(ctypes.c_int)(address))
    encoded = np.frombuffer(bytes(range(128)), "V128")
    far = SimpleNamespace(cluster=(1, 1, 1), shared_bytes=64, function=lambda: SimpleNamespace(ptr=0x7F1234567890))
    bound = launch_packed.PackedLaunch(
        far, (132, 2), 384, [np.uint32(7), np.uint64(2**40 + 3), encoded], dependent=True
    )  # type: ignore[arg-type]
    gc.collect()
    for _ in range(2):
        bound(0x7FABCDEF0010)
    sizes = (132, 2, 1, 384, 1, 1, 64, 0x7FABCDEF0010, 1)
    assert seen == [(sizes, 6, 1, 0x7F1234567890, (7, 2**40 + 3, bytes(range(128))), None)] * 2


def test_arguments_that_differ_by_stream(machine: Machine) -> None:
    asked: list[int] = []

    def by_stream(stream: int) -> tuple[dict[int, Any], Any]:
        asked.append(stream)
        return {1: np.uint64(1000 + stream)}, "kept"

    bound = packed(machine, by_stream=by_stream)
    for stream in (5, 6, 5):
        bound(stream)
    assert [int.from_bytes(one.arguments[1], "little") for one in machine.launched] == [1005, 1006, 1005]
    assert asked == [5, 6]
    assert bound.calls[5][0]._obj.held[1] == "kept"


def test_launches_one_after_the_other_are_kept_as_one(machine: Machine) -> None:
    first, second = packed(machine), packed(machine, dependent=True)
    both = launch_packed.Launches([first, second])
    both(4)
    machine.launch(*both.calls[4])
    assert [(one.dependent, one.stream) for one in machine.launched] == [(False, 4), (True, 4)] * 2
    assert launch_packed.Launches().calls is None
    assert launch_packed.Launches([first]).calls is first.calls


def test_a_table_alone_knows_nothing(machine: Machine) -> None:
    assert Table().launch(*three()) is None
    assert machine.launched == []
