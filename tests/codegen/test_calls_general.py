"""Kept launches of what is more than a plain product: found by all of their arrays and numbers; what memory of their own they
have, and when it goes.
"""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stridewright import Gemm, gemm
from stridewright.codegen import bind, first_call, general_bind, launch_packed, workspace
from stridewright.codegen import calls as calls_module
from stridewright.codegen.bind import OperandError
from stridewright.codegen.general import GeneralGemm
from stridewright.codegen.terms import TERMS
from stridewright.kernels.config import GemmConfig

from .fake_devices import BF16, Array, Machine, Tensor, kernel_of, machine

__all__ = ["machine"]
COPY = 2000
"""Added to the number of the device: the function of the kernel that copies operands."""


@pytest.fixture
def bound(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What was bound, in order; kernels are numbers."""
    made: list[Any] = []
    real = GeneralGemm.bind

    def counted(self: GeneralGemm, *given: Any, **options: Any) -> Any:
        made.append(real(self, *given, **options))
        return made[-1]

    def copies(element: int, arch: str) -> Any:
        return SimpleNamespace(
            cluster=(1, 1, 1), shared_bytes=0, function=lambda: SimpleNamespace(ptr=COPY + machine.device)
        )

    def encoded(tensor_map: Any, address: int) -> Any:
        return np.frombuffer(address.to_bytes(8, "little").ljust(128, b"\0"), "V128")

    monkeypatch.setattr(GeneralGemm, "bind", counted)
    monkeypatch.setattr(GeneralGemm, "kernel", kernel_of())
    monkeypatch.setattr(Gemm, "kernel", kernel_of())
    monkeypatch.setattr(general_bind.copies, "kernel", copies)
    monkeypatch.setattr(general_bind, "_encoded", encoded)
    monkeypatch.setattr(bind, "_encoded", encoded)
    first_call.forget()
    yield made
    first_call.forget()


def arrays(m: int = 40, n: int = 24, k: int = 64, dtype: Any = BF16, device: int = 0) -> tuple[Array, Array, Array]:
    places = enumerate(((m, k), (n, k), (m, n)), 1)
    return tuple(Array(2**20 * place, shape, dtype, device) for place, shape in places)  # type: ignore[return-value]


def terms(launched: Any) -> Any:
    return np.frombuffer(launched.arguments[-1], TERMS)[0]


@pytest.mark.parametrize("way", ["Gemm", "gemm", "a plain Gemm"])
def test_a_fused_call_is_bound_once(bound: list[Any], machine: Machine, way: str) -> None:
    fused, plain = Gemm(40, 24, 64, activation="gelu"), Gemm(40, 24, 64)
    for _ in range(3):
        a, b, out = arrays()  # new objects at the same places, and then again the same ones
        bias = Array(2**24, (24,), np.float32)
        for _ in range(2):
            if way == "Gemm":
                assert fused(a, b, bias=bias, alpha=0.5, out=out) is out
            elif way == "gemm":
                assert gemm(a, b, out=out, bias=bias, alpha=0.5, activation="gelu") is out
            else:
                assert plain(a, b, bias=bias, alpha=0.5, out=out) is out
    assert len(bound) == 1
    assert len(machine.launched) == 6
    assert len(set(machine.launched)) == 1
    struct = terms(machine.launched[0])
    assert (int(struct["bias"]), float(struct["alpha"])) == (2**24, 0.5)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("bias", Array(2**25, (24,), np.float32)),
        ("bias", Array(2**24, (24,), np.float16)),
        ("bias", Array(2**24, (40, 1), np.float32)),
        ("bias", None),
        ("alpha", 0.25),
        ("alpha", Array(2**26, (1,), np.float32)),
        ("beta", 2.0),
        ("c", Array(2**25, (40, 24), np.float32)),
        ("scale_a", Array(2**26, (1,), np.float32)),
        ("amax", Array(2**26, (1,), np.float32)),
    ],
    # Not as text: that of an array has its address, and each process of the tests would name it otherwise.
    ids=lambda value: f"{value.shape} {value.dtype}" if isinstance(value, Array) else str(value),
)
def test_whatever_differs_is_bound_anew(bound: list[Any], machine: Machine, name: str, other: Any, same: bool) -> None:
    made = Gemm(40, 24, 64, d="f32")
    a, b, out = arrays()
    out = Array(2**23, (40, 24), np.float32)
    given: dict[str, Any] = {"bias": Array(2**24, (24,), np.float32), "alpha": 0.5, "beta": 1.0}
    given["c"] = Array(2**24 + 4096, (40, 24), np.float32)
    for _ in range(3):
        made(a, b, out=out, **given)
    if not same:
        a, b, out = (Array(x.data.ptr, x.shape, x.dtype) for x in (a, b, out))
    for _ in range(3):
        made(a, b, out=out, **(given | {name: other}))
    assert len(bound) == 2
    made(a, b, out=out, **given)
    assert len(bound) == 2
    first, changed = terms(machine.launched[0]), terms(machine.launched[3])
    assert [*machine.launched[:3], machine.launched[6]] == [machine.launched[0]] * 4
    assert first != changed or machine.launched[0] != machine.launched[3] or name == "bias"


def test_numbers_of_other_types_are_told_apart(bound: list[Any]) -> None:
    made = Gemm(40, 24, 64, d="f32")
    a, b, _ = arrays()
    out = Array(2**23, (40, 24), np.float32)
    for alpha in (2, 2.0, np.float32(2.0), np.float64(2.0), 2.0):
        made(a, b, alpha=alpha, out=out)
    assert len(bound) == 4


def test_a_shape_that_was_changed_in_place_is_refused(bound: list[Any]) -> None:
    made = Gemm(40, 24, 64, activation="relu")
    a, b, out = arrays()
    bias = Array(2**24, (24,), np.float32)
    for _ in range(3):
        made(a, b, bias=bias, out=out)
    bias.shape = (4, 6)
    with pytest.raises(OperandError, match="bias: shape"):
        made(a, b, bias=bias, out=out)
    bias.shape, a.shape = (24,), (64, 40)
    with pytest.raises(OperandError, match="a: shape"):
        made(a, b, bias=bias, out=out)
    assert len(bound) == 1


def test_a_fused_call_keeps_no_array_alive(bound: list[Any]) -> None:
    made = Gemm(40, 24, 64, activation="relu")
    given = [*arrays(), Array(2**24, (24,), np.float32)]
    for _ in range(3):
        made(given[0], given[1], out=given[2], bias=given[3])
    bound.clear()
    alive = [weakref.ref(array) for array in given]
    del given
    gc.collect()
    assert [one() for one in alive] == [None] * 4


def test_tensors_of_torch_go_to_torch_s_stream_with_their_bias(bound: list[Any], machine: Machine) -> None:
    made = Gemm(40, 24, 64, activation="relu")
    machine.torch_streams[0] = 6
    a, b, out = Tensor(2**20, (40, 64)), Tensor(2**21, (24, 64)), Tensor(2**22, (40, 24))
    for _ in range(2):
        assert made(a, b, bias=Tensor(2**24, (24,), "torch.float32"), out=out) is out
    machine.torch_streams[0] = 7
    made(a, b, bias=Tensor(2**24, (24,), "torch.float32"), out=out)
    assert [one.stream for one in machine.launched] == [6, 6, 7]
    assert len(bound) == 1


def test_batches_and_other_formats_are_kept_without_options(bound: list[Any], machine: Machine) -> None:
    a, b = (Array(2**20 * place, shape) for place, shape in enumerate(((3, 40, 64), (3, 24, 64)), 1))
    out = Array(2**22, (3, 40, 24))
    half = arrays(dtype=np.float16)
    wide = Array(2**23, (40, 24), np.float32)
    for _ in range(3):
        assert gemm(a, b, out=out) is out
        assert gemm(*half) is half[2]
        assert gemm(*arrays()[:2], out=wide) is wide  # the result's format is the array's
    assert len(bound) == 3
    assert len(machine.launched) == 9


def test_groups_of_k_are_called_by_their_arrays(bound: list[Any], machine: Machine) -> None:
    a, b = Array(2**20, (40, 64)).lying((2, 80)), Array(2**21, (24, 64)).lying((2, 48))
    out = Array(2**23, (2, 40, 24), np.float32)
    offsets = Array(2**22, (3,), np.int32)
    for _ in range(2):
        assert gemm(a, b, out=out, groups=2, group_by="k", offsets=offsets) is out
    assert len(bound) == 1
    rows = arrays()[:2]
    with pytest.raises(OperandError, match='a: is K-major, and this kernel reads it MN-major; relayout="copy"'):
        gemm(*rows, out=out, groups=2, group_by="k", offsets=offsets)
    assert gemm(*rows, out=out, groups=2, group_by="k", offsets=offsets, relayout="copy") is out
    assert [one.function for one in machine.launched] == [100, 100, COPY, COPY, 100]


def test_results_without_out_are_of_the_gemm_s_format(bound: list[Any]) -> None:
    a, b, _ = arrays()
    assert Gemm(40, 24, 64, d="f32")(a, b).dtype == np.float32
    assert Gemm(40, 24, 64, d="e4m3")(a, b).dtype == np.uint8
    assert gemm(a, b, activation="relu").shape == (40, 24)


@pytest.mark.parametrize("machine", [2], indirect=True)
def test_fused_calls_go_to_the_device_of_their_arrays(bound: list[Any], machine: Machine) -> None:
    machine.streams.update({0: 20, 1: 21})
    made = Gemm(40, 24, 64, activation="relu")
    for _ in range(2):
        for device in (0, 1):
            a, b, out = arrays(device=device)
            for _ in range(2):
                made(a, b, out=out, bias=Array(2**24, (24,), np.float32, device))
    assert [(one.device, one.function, one.stream) for one in machine.launched] == (
        [(0, 100, 20)] * 2 + [(1, 101, 21)] * 2
    ) * 2
    assert len(bound) == 2
    assert machine.device == 0
    with pytest.raises(Exception, match="bias: lies on device 1, and the launch is on device 0"):
        made(*arrays()[:2], out=arrays()[2], bias=Array(2**24, (24,), np.float32, 1))


# ---- memory of its own ------------------------------------------------------------------------------------------------


def test_copies_come_before_each_kept_launch_and_are_counted(
    bound: list[Any], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, out = arrays(k=37)
    made = Gemm(40, 24, 37)
    for _ in range(2):
        made(a, b, out=out)
    assert [one.function for one in machine.launched] == [COPY, COPY, 100] * 2
    table = made._calls.table
    assert table._bytes == 2 * 40 * (40 + 24)
    monkeypatch.setattr(calls_module, "MOST_BYTES", 3 * 40 * (40 + 24))
    other = Array(2**24, (40, 24))
    copies = weakref.ref(bound[0].launch)
    bound.clear()
    made(a, b, out=other)
    assert (len(table), table._bytes) == (1, 2 * 40 * (40 + 24))
    gc.collect()
    assert copies() is None  # not by the identity of its arrays either
    monkeypatch.setattr(calls_module, "MOST_BYTES", 100)
    made(a, b, out=Array(2**25, (40, 24)))
    assert len(table) == 1  # too much to be kept: bound anew each time


def test_copies_of_all_gemms_together_are_bounded(
    bound: list[Any], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = 2 * 40 * (40 + 24)
    monkeypatch.setattr(calls_module, "MOST_BYTES_OF_ALL", 3 * each)
    a, b, _ = arrays(k=37)
    gemms = [Gemm(40, 24, 37) for _ in range(5)]
    for number, made in enumerate(gemms):
        made(a, b, out=Array(2**24 + 4096 * number, (40, 24)))
    tables = [made._calls.table for made in gemms]
    assert sum(table.memory for table in tables) == 3 * each
    assert sum(len(table) for table in tables) == 3


def test_memory_of_a_captured_launch_stays(bound: list[Any], machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[Any] = []
    monkeypatch.setattr(workspace, "_PINNED", pinned)
    a, b, out = arrays(k=37)
    made = Gemm(40, 24, 37)
    made(a, b, out=out)
    assert pinned == []
    machine.streams[0] = 9
    machine.capturing.add(9)
    for _ in range(2):
        made(a, b, out=out)
    assert len(pinned) == 1
    made(a, b, out=Array(2**24, (40, 24)))
    assert len(pinned) == 2
    plain = arrays()
    Gemm(40, 24, 64, activation="relu")(plain[0], plain[1], out=plain[2])
    assert len(pinned) == 2  # it has none


def split() -> Gemm:
    return Gemm(128, 128, 8192, config=GemmConfig().replace(tile_n=64, split_kind="split", parts=4))


def split_arrays(place: int = 1) -> tuple[Array, Array, Array]:
    return (
        Array(2**28 * place, (128, 8192)),
        Array(2**28 * place + 2**22, (128, 8192)),
        Array(2**28 * place + 2**24, (128, 128)),
    )


def workspaces(machine: Machine) -> list[tuple[int, int]]:
    """Addresses of the partial sums and the counters of each launch."""
    numbers = [[int.from_bytes(value, "little") for value in one.arguments[-3:-1]] for one in machine.launched]
    return [(partials, counters) for partials, counters in numbers]


def test_a_stream_has_one_workspace_for_all_launches(bound: list[Any], machine: Machine) -> None:
    made = split()
    size = made.workspace_bytes
    assert size > 0
    other = Gemm(128, 128, 4096, config=GemmConfig().replace(tile_n=64, split_kind="split", parts=2))
    smaller = [Array(one.data.ptr + 2**40, (128, 4096)) for one in split_arrays()[:2]]
    for place in (1, 2, 3):
        for stream in (5, 6, 5):
            made(*split_arrays(place)[:2], out=split_arrays(place)[2], stream=stream)
        other(*smaller, out=split_arrays(9)[2], stream=5)  # needs less, and finds the same
    found = workspaces(machine)
    assert len(set(found)) == 2
    assert [one == found[0] for one in found] == [True, False, True, True] * 3
    cleared = [event for event in machine.events if event[0] == "clear"]
    assert [event[3] for event in cleared] == [5005] * 2  # once each, in a stream of its own
    assert size <= cleared[0][2] <= 2 * size + 2 * workspace.COUNTER_BYTES + workspace.NUMBER_BYTES
    assert machine.allocated == [5005, 5005]
    for partials, counters in found:
        assert partials == counters + workspace.COUNTER_BYTES + workspace.NUMBER_BYTES
    one = made.bind(*split_arrays())
    another = made.bind(*split_arrays())
    assert one.workspace.memory.address != another.workspace.memory.address


def test_more_is_made_where_more_is_needed_and_less_finds_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = workspace._OfStreams()
    addresses = [made.of(0, 7, workspace.Sizes(size, 8, 1)).partials for size in (1000, 900, 5000, 1024, 4000, 8192)]
    assert [addresses.index(one) for one in addresses] == [0, 0, 2, 0, 2, 2]
    assert made.bytes == 2 * (workspace.COUNTER_BYTES + workspace.NUMBER_BYTES) + 1024 + 8192


def test_sums_that_are_added_in_place_have_zeros_of_their_own(bound: list[Any], machine: Machine) -> None:
    config = GemmConfig().replace(tile_n=64, split_kind="split", parts=4, reduce="atomic")
    gemms = [Gemm(128, 128, 8192, config=config) for _ in range(2)]
    for made in gemms:
        for stream in (5, 6, 5):
            made(*split_arrays()[:2], out=split_arrays()[2], stream=stream)
    found = workspaces(machine)
    assert len(set(found)) == 4
    assert [found.index(one) for one in found] == [0, 1, 0, 3, 4, 3]
    assert gemms[0]._calls.workspaces.bytes == 2 * gemms[0].workspace_bytes


def test_the_caller_s_workspace_is_cleared_before_each_launch(bound: list[Any], machine: Machine) -> None:
    made = split()
    size = made.workspace_bytes
    a, b, out = split_arrays()
    mine = Array(2**31, (size,), np.uint8)
    for _ in range(3):
        assert made(a, b, out=out, workspace=mine, stream=5) is out
    partials, counters = workspaces(machine)[0]
    assert (partials, set(workspaces(machine))) == (2**31, {(partials, counters)})
    assert 2**31 < counters < 2**31 + size
    assert machine.events == [("clear", 2**31, size, 5)] * 3
    assert machine.allocated == []
    bound_once = made.bind(a, b, out, workspace=mine)
    bound_once(6)
    assert machine.events[-1] == ("clear", 2**31, size, 6)
    alive = weakref.ref(mine)
    del mine, bound_once
    bound.clear()
    gc.collect()
    assert alive() is None


def test_a_workspace_that_does_not_do_is_refused(bound: list[Any], machine: Machine) -> None:
    made = split()
    size = made.workspace_bytes
    a, b, out = split_arrays()
    cases: list[tuple[Any, str]] = [
        (Array(2**31, (size - 1,), np.uint8), f"has {size - 1} bytes, and this launch needs {size}"),
        (Array(2**31 + 4, (size,), np.uint8), "must be a multiple of 16"),
        (Array(2**31, (size, 2), np.uint8).lying((4, 1)), "are not neighbours"),
        (np.zeros(size, np.uint8), "numpy's memory is the host's"),
    ]
    for given, words in cases:
        with pytest.raises(OperandError, match=words):
            made(a, b, out=out, workspace=given)
        with pytest.raises(OperandError, match=words):
            made.bind(a, b, out, workspace=given)
    assert machine.launched == []


def test_a_launch_that_needs_none_takes_any_workspace(bound: list[Any], machine: Machine) -> None:
    a, b, out = arrays()
    assert Gemm(40, 24, 64).workspace_bytes == 0
    Gemm(40, 24, 64)(a, b, out=out, workspace=Array(2**31, (1,), np.uint8))
    assert len(machine.launched) == 1
    assert machine.events == []


def test_workspaces_of_streams_that_are_gone_go_after_their_work(machine: Machine) -> None:
    for made, added in ((workspace._OfStreams(), False), (workspace.Workspaces(), True)):
        machine.events.clear()
        for stream in range(70):
            made.of(0, 100 + stream, workspace.Sizes(64, 8, 1, added))
        assert ("synchronize device", 0) in machine.events
        assert made.bytes <= 64 * (64 + workspace.COUNTER_BYTES + workspace.NUMBER_BYTES)


def test_k_of_zero_reads_zeros_that_are_there(bound: list[Any], machine: Machine) -> None:
    a, b, out = arrays(k=0)
    c = Array(2**24, (40, 24), np.float32)
    for _ in range(2):
        Gemm(40, 24, 0, d="bf16")(a, b, c=c, beta=1.0, out=out)
    assert machine.events[:2] == [("clear", machine.launched and 80000, 40 * 16, 5005), ("synchronize", 5005)]
    assert len(machine.launched) == 2


def test_an_empty_result_comes_back_unlaunched(bound: list[Any], machine: Machine) -> None:
    a, b, out = arrays(m=0)
    assert Gemm(0, 24, 64)(a, b, out=out) is out
    assert gemm(a, b, out=out) is out
    assert gemm(a, b).shape == (0, 24)
    batch = Gemm(40, 24, 64, batch=0)(Array(2**20, (0, 40, 64)), Array(2**21, (0, 24, 64)))
    assert batch.shape == (0, 40, 24)
    assert machine.launched == []


def test_many_threads_compile_a_new_mixture_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    from stridewright.codegen import build, launch

    first_call.forget()
    built: list[str] = []
    loaded: list[str] = []

    def slowly(source: str, *given: Any, **options: Any) -> Any:
        built.append(source)
        time.sleep(0.05)
        return SimpleNamespace(cubin=b"", ptx="", cubin_path=None)

    def load(self: Any, cupy: Any, device: int) -> Any:
        loaded.append(self.name)
        time.sleep(0.02)
        return SimpleNamespace(ptr=100)

    monkeypatch.setattr(build, "build", slowly)
    monkeypatch.setattr(launch.LoadedKernel, "_load", load)
    for module in (bind, general_bind):
        monkeypatch.setattr(module, "_encoded", lambda tensor_map, address: np.zeros(1, "V128"))
    made = Gemm(40, 24, 64, activation="relu")
    barrier = threading.Barrier(8)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            barrier.wait()
            a, b, _ = arrays()
            out = Array(2**24 + 4096 * number, (40, 24))
            bias = Array(2**25, (24,), np.float32)
            call = made if number % 2 else gemm
            options = {} if number % 2 else {"activation": "relu"}
            for _ in range(3):
                assert call(a, b, out=out, bias=bias, **options) is out
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first_call.forget()
    assert failed == []
    assert len(built) == len(loaded) == 2  # one of the Gemm, one of gemm's own
    assert len(machine.launched) == 24
    assert launch_packed.PackedLaunch.kept is None
