"""Calls with the caller's own workspace: with and without ``out``, needed or not, and where it must not lie."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from stridewright import Gemm, gemm
from stridewright.codegen import bind, first_call, workspace
from stridewright.codegen.bind import OperandError
from stridewright.codegen.launch_packed import CallsByStream
from stridewright.kernels.config import GemmConfig

from .fake_devices import Array, Machine, machine, replace_kernels

__all__ = ["machine"]

SPLIT = GemmConfig().replace(split_kind="split", parts=4)
DEEP = 2**16
A, B, OUT, BIAS, WORK = (2**32 * place for place in range(1, 6))


@pytest.fixture(autouse=True)
def kernels(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels are numbers, tensor maps the addresses that they are of."""

    replace_kernels(monkeypatch)
    first_call.forget()
    yield
    first_call.forget()


def work(size: int = 2**22, at: int = WORK) -> Array:
    return Array(at, (size,), np.uint8)


@pytest.mark.parametrize("way", ["gemm", "Gemm", "split"])
def test_a_result_is_made_beside_a_given_workspace(machine: Machine, way: str) -> None:
    m, n, k = (128, 128, DEEP) if way == "split" else (40, 24, 64)
    a, b = Array(A, (m, k)), Array(B, (n, k))
    made = Gemm(m, n, k, config=SPLIT if way == "split" else None)
    out = gemm(a, b, workspace=work()) if way == "gemm" else made(a, b, workspace=work())
    assert (out.shape, out.dtype) == ((m, n), a.dtype)
    assert len(machine.launched) == 1
    cleared = [event[1:3] for event in machine.events if event[0] == "clear" and event[1] == WORK]
    assert cleared == ([(WORK, made.workspace_bytes)] if way == "split" else [])


@pytest.mark.parametrize("workspace", [3, "x", 2.0, [1]])
@pytest.mark.parametrize("size", [0, 40])
@pytest.mark.parametrize("bias", [False, True])
def test_what_is_no_memory_is_refused_needed_or_not(machine: Machine, workspace: Any, size: int, bias: bool) -> None:
    others = {"bias": Array(BIAS, (24,), np.float32)} if bias else {}
    a, b, kind = Array(A, (size, 64)), Array(B, (24, 64)), type(workspace).__name__
    for call in (gemm, Gemm(size, 24, 64), Gemm(size, 24, 64).bind):
        with pytest.raises(OperandError, match=rf"workspace: {kind} was given, .*cupy\.empty\(gemm\.workspace_bytes"):
            call(a, b, out=Array(OUT, (size, 24)), workspace=workspace, **others)
    assert machine.launched == []


@pytest.mark.parametrize("with_out", [True, False])
def test_a_workspace_that_is_too_small_is_refused(machine: Machine, with_out: bool) -> None:
    made, a, b = Gemm(128, 128, DEEP, config=SPLIT), Array(A, (128, DEEP)), Array(B, (128, DEEP))
    out = Array(OUT, (128, 128)) if with_out else None
    with pytest.raises(OperandError, match=rf"workspace: has 16 bytes, and this launch needs {made.workspace_bytes}"):
        made(a, b, out=out, workspace=work(16))
    assert machine.launched == []


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("name", "at"), [("a", A), ("b", B + 2**20), ("out", OUT), ("out", OUT - 1024), ("bias", BIAS)]
)
def test_a_workspace_lies_over_no_array(machine: Machine, name: str, at: int, bias: bool) -> None:
    if name == "bias" and not bias:
        return
    made = Gemm(128, 128, DEEP, config=SPLIT)
    others = {"bias": Array(BIAS, (128,), np.float32)} if bias else {}
    a, b, out = Array(A, (128, DEEP)), Array(B, (128, DEEP)), Array(OUT, (128, 128))
    words = rf"workspace: the {made.workspace_bytes} bytes that .* share memory with {name}; cupy\.empty"
    with pytest.raises(OperandError, match=words):
        made(a, b, out=out, workspace=work(at=at), **others)
    assert machine.launched == []
    # What of it the launch does not use may be anything.
    made(a, b, out=out, workspace=work(at=OUT - made.workspace_bytes // 16 * 16 - 16), **others)
    assert len(machine.launched) == 1


def test_a_workspace_of_an_empty_product_is_not_looked_for(machine: Machine) -> None:
    out = Array(OUT, (0, 24))
    assert Gemm(0, 24, 64)(Array(A, (0, 64)), Array(B, (24, 64)), out=out, workspace=work()) is out
    assert machine.launched == []


@pytest.mark.parametrize("strides", [(0, 2), (16, 2), (32, 2)])
@pytest.mark.parametrize("bias", [False, True])
def test_a_result_that_overlaps_itself_is_named_so(machine: Machine, strides: tuple[int, int], bias: bool) -> None:
    others = {"bias": Array(BIAS, (24,), np.float32)} if bias else {}
    with pytest.raises(OperandError, match="out: its elements lie over one another"):
        gemm(Array(A, (40, 64)), Array(B, (24, 64)), Array(OUT, (40, 24)).lying(strides), **others)
    assert machine.launched == []


@pytest.mark.parametrize("place", [(OUT + 2, (128, 2)), (OUT, (146, 2))])
@pytest.mark.parametrize("bias", [False, True])
def test_a_result_out_of_reach_of_a_configuration_is_named(machine: Machine, place: Any, bias: bool) -> None:
    config = GemmConfig().replace(tile_m=64, tile_n=64, consumers=1)
    others = {"bias": Array(BIAS, (64,), np.float32)} if bias else {}
    out = Array(place[0], (64, 64)).lying(place[1])
    with pytest.raises(OperandError, match=r'out: .* must be a multiple of 16 .*store="direct"'):
        Gemm(64, 64, 64, config=config)(Array(A, (64, 64)), Array(B, (64, 64)), out=out, **others)
    assert machine.launched == []
    Gemm(64, 64, 64)(Array(A, (64, 64)), Array(B, (64, 64)), out=out, **others)
    assert len(machine.launched) == 1


def test_what_is_written_beside_d_comes_back_to_numpy_arrays(machine: Machine) -> None:
    machine.cupy.asnumpy = lambda array, **options: np.full(array.shape, 7, array.dtype)
    aux, amax = np.zeros((40, 24), bind._bfloat16()), np.zeros((), np.float32)
    a, b, out = Array(A, (40, 64)), Array(B, (24, 64)), Array(OUT, (40, 24))
    assert Gemm(40, 24, 64)(a, b, out=out, aux=aux, amax=amax) is out
    assert (aux == 7).all()
    assert float(amax) == 7
    d = np.zeros((40, 24), aux.dtype)
    assert Gemm(40, 24, 64)(a, b, out=d, bias=Array(BIAS, (24,), np.float32)) is d
    assert (d == 7).all()
    with pytest.raises(OperandError, match="aux: shares memory with out, and both are written"):
        Gemm(40, 24, 64)(a, b, out=d, aux=d)


def test_numpy_arrays_that_are_written_are_looked_at_before_a_launch(machine: Machine) -> None:
    fixed = np.zeros((40, 24), bind._bfloat16())
    fixed.flags.writeable = False
    for given in ({"aux": fixed}, {"out": fixed}, {"amax": np.full(1, -1, np.float32)}):
        with pytest.raises(OperandError, match=f"{next(iter(given))}: "):
            Gemm(40, 24, 64)(Array(A, (40, 64)), Array(B, (24, 64)), **given)
    assert machine.launched == []


def in_threads(what: Callable[[], Any], count: int) -> list[Any]:
    """What each of several threads gets, all of which are alive until the last has it."""
    found: list[Any] = []
    together = threading.Barrier(count)

    def run() -> None:
        found.append(what())
        together.wait()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_the_stream_of_each_thread_has_one_address_and_a_workspace_in_each() -> None:
    """cudaStreamPerThread is 2 in every thread, and another stream: launches there run at the same time."""
    made: list[int] = []

    def make(stream: int) -> tuple[Any, ...]:
        made.append(workspace._in_this_thread(stream))
        return (len(made),)

    calls = CallsByStream(make, device=0)
    numbers = in_threads(lambda: (calls[2], calls[2]), 3)
    assert all(first == second for first, second in numbers)
    assert len({first for first, _ in numbers}) == 3
    assert len(set(made)) == 3
    assert all(number < 0 for number in made)
    # Any other stream is one for all threads.
    assert len(set(in_threads(lambda: calls[7], 3))) == 1
    assert set(in_threads(lambda: workspace._in_this_thread(7), 3)) == {7}
