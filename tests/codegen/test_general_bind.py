"""The launch of a general GEMM on a GPU, with a stand-in device: which kernels are launched, in which order, with which arguments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen import general, general_bind, launch_packed, tensors, workspace
from stridewright.codegen.launch import pack_argument
from stridewright.codegen.tensors import Tensor
from stridewright.codegen.terms import TERMS


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """What PackedLaunch is made of, in order; arrays are numpy's and their addresses stand for the device's."""
    made: list[SimpleNamespace] = []

    def packed(kernel: Any, grid: Any, block: Any, args: Any, dependent: bool = False, by_stream: Any = None) -> Any:
        made.append(
            SimpleNamespace(kernel=kernel, grid=grid, args=[pack_argument(one, i) for i, one in enumerate(args)])
        )
        return lambda stream: None

    def loaded(element: int, arch: str) -> Any:
        return SimpleNamespace(name=f"relayout_{element}")

    monkeypatch.setattr(launch_packed, "PackedLaunch", packed)
    monkeypatch.setattr(general_bind.copies, "kernel", loaded)
    monkeypatch.setattr(general_bind, "_multiprocessors", lambda: 132)
    monkeypatch.setattr(general_bind, "_encoded", lambda tensor_map, address: np.zeros(1, "V128"))
    monkeypatch.setattr(general, "of_device", tensors.of_numpy)
    monkeypatch.setattr(workspace, "new", lambda needed: workspace.Memory(needed))
    monkeypatch.setattr(general.GeneralGemm, "kernel", SimpleNamespace(name="stridewright_gemm"))
    return made


def test_terms_follow_the_plain_arguments_as_one_struct(launched: list[SimpleNamespace]) -> None:
    a, b = np.zeros((40, 64), ml_dtypes.bfloat16), np.zeros((24, 64), ml_dtypes.bfloat16)
    bias, scale = np.zeros(24, np.float32), np.ones(1, np.float32)
    Gemm(40, 24, 64, d="f32").bind(a, b, np.zeros((40, 24), np.float32), bias=bias, alpha=0.5, scale_b=scale)
    (one,) = launched
    assert one.kernel.name == "stridewright_gemm"
    assert len(one.args) == 14
    struct = one.args[-1]
    assert struct.dtype == TERMS
    assert struct["alpha"][0] == np.float32(0.5)
    assert struct["bias"][0] == bias.__array_interface__["data"][0]
    assert struct["factors"][0].tolist() == [0, 0, scale.__array_interface__["data"][0]]


def test_copies_come_before_the_kernel_that_reads_them(launched: list[SimpleNamespace]) -> None:
    a, b = np.zeros((40, 37), np.int8), np.zeros((24, 37), np.int8)
    bound = Gemm(40, 24, 37, "s8", "s8", "s32").bind(a, b, np.zeros((40, 24), np.int32))
    assert [one.kernel.name for one in launched] == ["relayout_1", "relayout_1", "stridewright_gemm"]
    # The copies live as long as the launch; the caller's arrays need not.
    assert [kept.shape for kept in bound.launch.kept] == [(1, 40, 48), (1, 24, 48)]


def test_an_empty_result_launches_nothing(launched: list[SimpleNamespace]) -> None:
    bound = Gemm(0, 24, 64).bind(np.zeros((0, 64), ml_dtypes.bfloat16), np.zeros((24, 64), ml_dtypes.bfloat16))
    assert launched == []
    assert isinstance(bound.d, Tensor)
    assert bound.d.shape == (0, 24)
