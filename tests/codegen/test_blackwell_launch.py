"""A Blackwell GEMM on its way to a GPU: arrays are checked, and the arguments are those that the emulator is given. (No launch: that needs the chip.)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from typer.testing import CliRunner

from stridewright import Gemm
from stridewright.codegen import blackwell_general, blackwell_launch, launch_arrays, launch_packed
from stridewright.codegen import relayout as copies
from stridewright.codegen.bind import OperandError
from stridewright.codegen.blackwell_gemm import BlackwellGemm, BlackwellKernel, RungGemm
from stridewright.codegen.blackwell_general import BlackwellGeneralGemm
from stridewright.codegen.blackwell_launch import bind_blackwell, launch_arguments
from stridewright.codegen.cli import app
from stridewright.codegen.launch import DevicePointer
from stridewright.codegen.launch_arrays import DeviceMatrix
from stridewright.codegen.tensors import numpy_type as format_type
from stridewright.codegen.tensors import of_numpy

from .blackwell_cases import operands


def matrix(address: int, shape: tuple[int, int], major: str = "k", pitch: int | None = None, dtype: str = "bf16") -> DeviceMatrix:  # fmt: skip
    rows, columns = shape
    run = columns if major == "k" else rows
    strides = (pitch or run, 1) if major == "k" else (1, pitch or run)
    return DeviceMatrix(address, shape, strides, dtype, "cupy", object())


def gemm(m: int = 128, n: int = 264, k: int = 72, **options: Any) -> BlackwellGemm:
    made = Gemm(m, n, k, arch="sm_100a", **options)
    assert isinstance(made, BlackwellGemm)
    return made


@pytest.fixture
def plain_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps stay what they are: encoding them needs the driver."""
    monkeypatch.setattr(blackwell_launch, "_encoded", lambda tensor_map, address: (tensor_map, address))


@pytest.mark.parametrize("majors", [("k", "k"), ("mn", "k"), ("k", "mn"), ("mn", "mn")])
@pytest.mark.usefixtures("plain_maps")
def test_the_launch_has_the_emulator_s_arguments(majors: tuple[str, str]) -> None:
    made = gemm(a_major=majors[0], b_major=majors[1])
    a, b, d = matrix(1 << 20, (128, 72), majors[0]), matrix(1 << 21, (264, 72), majors[1]), matrix(1 << 22, (128, 264))
    found = launch_arguments(made, a, b, d)
    left, right = operands(made)
    emulated = made.emulator_arguments(
        made._host_operand(left, "a", 128), made._host_operand(right, "b", 264), np.zeros((128, 264), made.result_dtype)
    )
    assert len(found) == len(emulated) == 9
    for ours, theirs, address in zip(found[:4], emulated[:4], (1 << 20, 1 << 21, 1 << 22, 1 << 22), strict=True):
        assert ours == (theirs.map, address)
    assert found[4] == DevicePointer(1 << 22)
    assert [(type(one), int(one)) for one in found[5:]] == [(type(one), int(one)) for one in emulated[5:]]


@pytest.mark.usefixtures("plain_maps")
def test_pitches_reach_the_tensor_maps() -> None:
    made = gemm(a_major="mn")
    a, b, d = matrix(0, (128, 72), "mn", pitch=160), matrix(0, (264, 72), pitch=80), matrix(0, (128, 264), pitch=512)
    found = launch_arguments(made, a, b, d)
    assert [one[0].strides_bytes for one in found[:3]] == [(320,), (160,), (1024,)]
    assert int(found[5]) == 512


def test_the_textbook_rung_takes_pointers() -> None:
    made = RungGemm(0, 128, 264, 72)
    found = launch_arguments(made, matrix(16, (128, 72)), matrix(32, (264, 72)), matrix(48, (128, 264)))
    assert found == (DevicePointer(16), DevicePointer(32), DevicePointer(48), 128, 264, 72)
    assert [one.dtype for one in found[3:]] == [np.uint32] * 3


@dataclass
class Wrong:
    """Operands that do not fit, and the words that say so."""

    a: DeviceMatrix
    b: DeviceMatrix
    out: DeviceMatrix
    words: str


FINE = (matrix(1024, (128, 72)), matrix(2048, (264, 72)), matrix(4096, (128, 264)))


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong(matrix(1024, (128, 72), "mn"), *FINE[1:], r'a: its rows along K are not contiguous.*a_major="k"'),
        Wrong(matrix(1024, (128, 64)), *FINE[1:], r"a: shape \(128, 64\)"),
        Wrong(FINE[0], matrix(2048, (264, 72), dtype="f16"), FINE[2], "b: dtype float16"),
        Wrong(matrix(1032, (128, 72)), *FINE[1:], "a: its address, 1032, must be a multiple of 16"),
        Wrong(FINE[0], matrix(2048, (264, 72), pitch=76), FINE[2], "b: the bytes from one row to the next, 152"),
        Wrong(*FINE[:2], matrix(4096, (128, 256)), r"out: shape \(128, 256\)"),
        Wrong(*FINE[:2], matrix(4096, (128, 264), "mn"), "out: its rows are not contiguous"),
        Wrong(*FINE[:2], matrix(4100, (128, 264)), "out: its address, 4100"),
    ],
    ids=lambda wrong: wrong.words[:24],
)
def test_arrays_that_do_not_fit_are_refused_in_words(wrong: Wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_arrays, "adopt", lambda array, name: array)
    monkeypatch.setattr("stridewright.codegen.launch.import_cupy", lambda: None)
    with pytest.raises(OperandError, match=wrong.words):
        bind_blackwell(gemm(), wrong.a, wrong.b, wrong.out)


def test_the_command_line_takes_the_architecture_and_the_rungs() -> None:
    run = CliRunner().invoke
    result = run(app, ["gemm", "130", "72", "72", "--arch", "sm_100a", "--on", "emulator", "--values", "integers"])
    assert result.exit_code == 0, result.output
    assert "bit for bit    equal" in result.output
    result = run(app, ["gemm", "130", "72", "72", "--arch", "sm_100a", "--on", "emulator", "--rung", "1", "--json"])
    assert result.exit_code == 0, result.output
    assert '"name": "sm_100a_bf16_128x64x64_stages1_acc1_one_row_direct"' in result.output
    assert "Rung 4 of the ladder" in run(app, ["emit", "64", "64", "64", "--arch", "sm_103a", "--rung", "4"]).output
    assert "Tensor memory, and the multiply" in run(app, ["explain", "64", "64", "64", "--arch", "sm_100a"]).output
    refused = run(app, ["gemm", "64", "64", "64", "--rung", "4"])
    assert refused.exit_code == 2
    assert "Hopper's is `stridewright ladder`" in refused.output
    mixed = ["gemm", "136", "72", "72", "--arch", "sm_100a", "--on", "emulator", "--dtype", "f16", "--a-major", "mn"]
    assert run(app, mixed).exit_code == 0


class Recorded:
    """A launch that is only noted."""

    seen: ClassVar[list[Any]] = []

    def __init__(self, kernel: Any, grid: Any, block: Any, arguments: tuple[Any, ...], dependent: bool = False) -> None:
        self.kernel, self.grid, self.block, self.arguments = kernel, grid, block, arguments
        self.seen.append(self)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Arrays are numpy's, maps stay what they are, launches are noted: encoding and launching need the driver."""
    Recorded.seen = []
    monkeypatch.setattr(blackwell_general, "_encoded", lambda tensor_map, address: (tensor_map, address))
    monkeypatch.setattr(blackwell_general, "_multiprocessors", lambda: 4)
    monkeypatch.setattr(blackwell_general, "of_device", of_numpy)
    monkeypatch.setattr(launch_packed, "PackedLaunch", Recorded)
    monkeypatch.setattr(BlackwellKernel, "kernel", "the kernel")
    monkeypatch.setattr(copies, "kernel", lambda element, arch: f"copy of {element} bytes for {arch}")
    return Recorded.seen


@pytest.mark.parametrize(
    ("formats", "options"),
    [
        (("e4m3", "e5m2", "f32"), {}),
        (("s8", "bf16", "bf16"), {}),
        (("e2m1", "e3m2", "f16"), {}),
        (("u8", "s8", "s32"), {"batch": 3}),
        (("tf32", "tf32", "s8"), {"gated": True, "activation": "silu"}),
    ],
    ids=str,
)
def test_what_is_launched_is_what_is_emulated(
    formats: tuple[str, str, str], options: dict[str, Any], recorded: list[Any]
) -> None:
    made = Gemm(72, 48, 128, *formats, "sm_100a", **options)
    assert isinstance(made, BlackwellGeneralGemm)
    several = (3,) if "batch" in options else ()
    a, b = (np.zeros((*several, rows, 128), format_type(t)) for rows, t in zip((72, 48), formats[:2], strict=True))
    given = {"bias": np.zeros(48, np.float32), "scale_a": np.ones(72, np.float32), "alpha": 0.5}
    bound = made.bind(a, b, **given)
    (launch,) = recorded
    assert bound.launch.launches == recorded
    call = made.collect(of_numpy, a, b, None, given)
    kernel, copied = made.kernel_for(call)
    assert isinstance(kernel, BlackwellGeneralGemm)
    assert not copied
    emulated = kernel.emulated_arguments(call, call.a, call.b, bound.d)
    assert (launch.grid, launch.block) == (kernel.grid(4), (kernel.threads, 1, 1))
    assert len(launch.arguments) == len(emulated) == 10
    for ours, theirs in zip(launch.arguments[:4], emulated[:4], strict=True):
        if isinstance(theirs, bytes):
            assert bytes(ours.tobytes()) == theirs
        else:
            assert ours[0] == theirs.map
    assert launch.arguments[4] == DevicePointer(bound.d.address)
    assert [int(one) for one in launch.arguments[5:9]] == [int(one) for one in emulated[5:9]]
    struct = launch.arguments[9]
    assert (float(struct["alpha"][0]), int(struct["batches"][0])) == (0.5, 3 if several else 1)
    assert int(struct["bias"][0]) == call.pointers["bias"].address
    assert int(struct["scale_a"][0]) == call.pointers["scale_a"].address


def test_an_operand_that_tma_does_not_take_is_copied_before_the_launch(recorded: list[Any]) -> None:
    made = Gemm(40, 24, 107, "e4m3", "e4m3", "f32", "sm_100a")
    a, b = (np.zeros((rows, 107), np.uint8) for rows in (40, 24))
    bound = made.bind(a, b)
    assert [one.kernel for one in recorded] == ["copy of 1 bytes for sm_100a"] * 2 + ["the kernel"]
    assert [one.shape for one in bound.launch.kept] == [(1, 40, 112), (1, 24, 112)]
    maps = recorded[-1].arguments
    assert (maps[0][0].shape, maps[0][0].strides_bytes) == ((107, 40), (112,))


def test_nothing_is_launched_for_no_elements(recorded: list[Any]) -> None:
    made = Gemm(0, 24, 64, "e4m3", "e4m3", "f32", "sm_100a")
    made.bind(np.zeros((0, 64), np.uint8), np.zeros((24, 64), np.uint8))
    assert recorded == []
