"""The memory of a call's arrays: what is written lies over nothing else and not over itself, can be written, and is in the
machine's byte order. What is refused is refused before anything is written.
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from stridewright import Gemm
from stridewright.codegen import general, launch
from stridewright.codegen.bind import OperandError
from stridewright.codegen.launch_arrays import adopt
from stridewright.kernels.config import GemmConfig

from .fake_devices import Machine, machine

__all__ = ["machine"]

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = np.dtype(np.float32)


def drawn(*shape: int, dtype: Any = BF16) -> np.ndarray[Any, Any]:
    """Small whole numbers, whose sums are exact."""
    return np.random.default_rng(len(shape)).integers(-2, 3, shape).astype(dtype)


def refused(words: str, gemm: Any, a: Any, b: Any, **others: Any) -> None:
    with pytest.raises(OperandError, match=words):
        gemm.emulate(a, b, sms=2, **others)


# ---- formats ----------------------------------------------------------------------------------------------------------


def test_bytes_hold_aux_only_where_d_is_of_bytes() -> None:
    a, b, aux = drawn(40, 64), drawn(24, 64), np.zeros((40, 24), np.uint8)
    refused("aux: dtype u8, and it is written in D's format, bf16", Gemm(40, 24, 64), a, b, aux=aux)
    assert not aux.any()
    Gemm(40, 24, 64, d="e4m3").emulate(a, b, aux=aux, sms=2)
    wanted = (a.astype(np.float32) @ b.astype(np.float32).T).astype(ml_dtypes.float8_e4m3fn)
    assert (aux.view(wanted.dtype) == wanted).all()


# ---- memory in common -------------------------------------------------------------------------------------------------


def test_what_is_written_beside_d_lies_over_no_operand() -> None:
    a, b = drawn(64, 64), drawn(64, 64)
    before = a.copy()
    refused("aux: shares memory with a", Gemm(64, 64, 64), a, b, aux=a)
    refused("aux: shares memory with b", Gemm(64, 64, 64), a, b, aux=b)
    assert (a == before).all()


def test_a_view_with_gaps_is_no_result_of_its_own() -> None:
    buffer = np.zeros((3, 48, 80), BF16)
    a = buffer[:, :40, :64]
    a[...] = drawn(3, 40, 64)
    gemm, b = Gemm(40, 64, 64, batch=3), drawn(64, 64)
    refused("out: shares memory with a", gemm, a, b, out=buffer[:, :40, :64])
    refused("out: shares memory with a", gemm, a, b, out=buffer[:, 8:, 16:])
    wide = np.zeros((3, 40, 200), BF16)
    wide[:, :, :64] = a
    d = gemm.emulate(wide[:, :, :64], b, out=wide[:, :, 64:128], sms=2).d
    assert (d == (a.astype(np.float32) @ b.astype(np.float32).T).astype(BF16)).all()


def test_c_is_written_over_only_element_for_element() -> None:
    a, b, rows = drawn(64, 64), drawn(64, 64), drawn(65, 64)
    gemm = Gemm(64, 64, 64)
    refused("aux: shares memory with c.*C may be the very same", gemm, a, b, c=rows[:64], beta=1.0, aux=rows[1:])
    refused("out: shares memory with c", gemm, a, b, c=rows[:64], beta=1.0, out=rows[1:])
    wanted = gemm.emulate(a, b, c=rows[:64].copy(), beta=1.0, sms=2).d
    for name in ("out", "aux"):
        c = rows[:64].copy()
        gemm.emulate(a, b, c=c, beta=1.0, sms=2, **{name: c})
        assert (c == wanted).all()
    # The same address and strides, counted in elements, of elements half as long; and half of C's columns.
    floats = np.zeros((1, 64), FLOATS)
    first = drawn(1, 64)
    refused(
        "out: shares memory with c",
        Gemm(1, 64, 64, d="f32"),
        first,
        b,
        c=floats.view(BF16)[:, :64],
        beta=1.0,
        out=floats,
    )
    wide = np.zeros((64, 64), FLOATS)
    refused(
        "out: shares memory with c", Gemm(64, 64, 64, d="f32", gated=True), a, b, c=wide, beta=1.0, out=wide[:, :32]
    )


@pytest.mark.parametrize("name", ["scale_d", "alpha", "bias", "scale_a", "scale_b", "out"])
def test_amax_is_memory_of_its_own(name: str) -> None:
    one, d = np.ones(24, FLOATS), np.ones((40, 24), FLOATS)
    others = {name: d if name == "out" else one if name == "bias" else one[:1]}
    amax = d[3, 4:5] if name == "out" else one[:1]
    words = "out: shares memory with amax" if name == "out" else f"amax: shares memory with {name}"
    refused(words, Gemm(40, 24, 64, d="f32"), drawn(40, 64), drawn(24, 64), amax=amax, **others)
    assert (one == 1).all()


@pytest.mark.parametrize("name", ["out", "aux"])
@pytest.mark.parametrize("strides", [(0, 2), (16, 2), (32, 2)])
def test_elements_that_are_written_lie_apart(name: str, strides: tuple[int, int]) -> None:
    view = as_strided(np.zeros(4000, BF16), (40, 24), strides)
    words = re.escape(f"{name}: its elements lie over one another (shape (40, 24), strides {strides} in bytes)")
    refused(f"{words}.*strides \\(48, 2\\)", Gemm(40, 24, 64), drawn(40, 64), drawn(24, 64), **{name: view})


@pytest.mark.parametrize("between", [0, 48])
def test_matrices_that_are_written_lie_apart(between: int) -> None:
    gemm, a, b = Gemm(40, 24, 64, batch=3), drawn(3, 40, 64), drawn(24, 64)
    view = as_strided(np.zeros(9000, BF16), (3, 40, 24), (between, 48, 2))
    refused("out: its elements lie over one another", gemm, a, b, out=view)
    turned = np.zeros((40, 3, 24), BF16).transpose(1, 0, 2)
    assert (gemm.emulate(a, b, out=turned, sms=2).d == gemm.emulate(a, b, sms=2).d).all()


# ---- what can be written ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out", "aux", "amax"])
def test_what_may_not_be_written_is_refused_before_anything_is(name: str) -> None:
    others = {"out": np.zeros((40, 24), BF16), "aux": np.zeros((40, 24), BF16), "amax": np.zeros(1, FLOATS)}
    others[name].flags.writeable = False
    refused(
        f"{name}: this numpy array is read-only.*{name}.copy", Gemm(40, 24, 64), drawn(40, 64), drawn(24, 64), **others
    )
    assert not any(one.any() for one in others.values())


@pytest.mark.parametrize("start", [-5.0, -0.0, np.nan])
def test_amax_begins_where_patterns_ascend(start: float) -> None:
    amax = np.full(1, start, FLOATS)
    refused("amax: begins at .*must be 0.0 or more", Gemm(40, 24, 64), drawn(40, 64), drawn(24, 64), amax=amax)


def test_amax_is_raised_from_what_it_holds() -> None:
    a, b = drawn(40, 64), drawn(24, 64)
    most = float(np.abs(a.astype(np.float32) @ b.astype(np.float32).T).max())
    for start in (0.0, 1e6, np.inf):
        amax = np.full((), start, FLOATS)
        Gemm(40, 24, 64).emulate(a, b, amax=amax, sms=2)
        assert float(amax) == max(most, start)


# ---- byte order -------------------------------------------------------------------------------------------------------


def test_what_is_read_may_be_in_either_byte_order() -> None:
    gemm = Gemm(40, 24, 64, "f16", "f16", "f16")
    a, b = drawn(40, 64, dtype=np.float16), drawn(24, 64, dtype=np.float16)
    others = {"bias": drawn(24, dtype=FLOATS), "alpha": np.full(1, 2, FLOATS), "c": drawn(40, 24, dtype=FLOATS)}
    swapped = {name: one.astype(">f4") for name, one in others.items()}
    wanted = gemm.emulate(a, b, beta=1.0, sms=2, **others).d
    assert (gemm.emulate(a.astype(">f2"), b.astype(">f2"), beta=1.0, sms=2, **swapped).d == wanted).all()


def test_general_operands_of_bfloat16_may_be_in_either_byte_order() -> None:
    gemm, a, b = Gemm(40, 24, 64, activation="relu"), drawn(40, 64), drawn(24, 64)
    assert (gemm.emulate(a.astype(BF16.newbyteorder(">")), b, sms=2).d == gemm.emulate(a, b, sms=2).d).all()


@pytest.mark.parametrize(
    ("name", "shape", "kind"), [("out", (40, 24), "f2"), ("aux", (40, 24), "f2"), ("amax", (1,), "f4")]
)
def test_what_is_written_is_in_the_machines_byte_order(name: str, shape: tuple[int, ...], kind: str) -> None:
    gemm = Gemm(40, 24, 64, "f16", "f16", "f16")
    a, b = drawn(40, 64, dtype=np.float16), drawn(24, 64, dtype=np.float16)
    words = rf'{name}: its elements are big-endian .*{name}\.astype\({name}\.dtype\.newbyteorder\("="\)\)'
    refused(words, gemm, a, b, **{name: np.zeros(shape, f">{kind}")})


def test_arrays_on_their_way_to_a_device_are_looked_at_alike(machine: Machine) -> None:
    fixed = np.zeros((40, 24), np.float16)
    fixed.flags.writeable = False
    with pytest.raises(OperandError, match="out: this numpy array is read-only"):
        adopt(fixed, "out")
    with pytest.raises(OperandError, match="out: its elements are big-endian"):
        adopt(np.zeros((40, 24), ">f2"), "out")
    # Its copy on the device would not overlap, and come back into what does.
    with pytest.raises(OperandError, match="out: its elements lie over one another"):
        adopt(as_strided(np.zeros(4000, np.float16), (40, 24), (32, 2)), "out")
    assert adopt(fixed, "a").dtype == "f16"
    assert adopt(np.zeros((40, 24), ">f2"), "a").array.dtype.isnative


# ---- how it lies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "words"),
    [(slice(1, 65), r"out: its address, \d+, must"), (slice(0, 64), "out: the bytes between its rows, 146, must")],
)
def test_a_configuration_that_stores_by_tma_is_named_with_the_result(columns: slice, words: str) -> None:
    config = GemmConfig().replace(tile_m=64, tile_n=64, consumers=1)
    a, b = drawn(64, 64), drawn(64, 64)
    out = np.zeros((64, 73 if columns.start == 0 else 72), BF16)[:, columns]
    for gemm in (Gemm(64, 64, 64, config=config), Gemm(64, 64, 64, config=config, activation="relu")):
        refused(f'{words} be a multiple of 16 .*store="tma".*store="direct"', gemm, a, b, out=out)
    assert not out.any()
    wanted = Gemm(64, 64, 64).emulate(a, b, sms=2).d
    for one in (Gemm(64, 64, 64), Gemm(64, 64, 64, config=config.replace(store="direct"))):
        assert (one.emulate(a, b, out=out, sms=2).d == wanted).all()


def test_a_misaligned_operand_is_told_of_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_told", set())
    gemm, b = Gemm(40, 24, 64, "f16", "f16", "f16"), drawn(24, 64, dtype=np.float16)
    kept = [np.zeros(40 * 64 + 8 + 64 * i, np.float16)[1:][: 40 * 64].reshape(40, 64) for i in range(3)]
    wide = [np.zeros((40, 65), np.float16)[:, :64] for _ in range(3)]
    for a in (*kept, *wide):
        gemm.variant_for(a, b)
    told = [record.message for record in caplog.records if record.name == general.log.name]
    assert [text.split(" (TMA)")[0] for text in told] == [
        "a: its address is no multiple of 16",
        "a: the bytes from one row to the next are 130, no multiple of 16",
    ]
