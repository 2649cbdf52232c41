"""The commands emulate and cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

from stridewright.codegen.build import build
from stridewright.codegen.cache import Cache
from stridewright.codegen.cli import app
from stridewright.codegen.cli.machine_commands import parse_argument, parse_sizes

ADD = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry add(.param .u64 p, .param .f32 x)
{
    .reg .b32 %r<3>; .reg .f32 %f<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p];
    ld.param.f32 %f1, [x];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd2, %rd2, %rd3;
    ld.global.f32 %f2, [%rd2];
    add.f32 %f3, %f2, %f1;
    st.global.f32 [%rd2], %f3;
    ret;
}
"""


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def ptx_file(tmp_path: Path) -> Path:
    path = tmp_path / "add.ptx"
    path.write_text(ADD)
    return path


def test_file_is_run_and_its_arrays_saved(ptx_file: Path, tmp_path: Path) -> None:
    saved = tmp_path / "out.npz"
    done = call(
        "emulate", str(ptx_file), "--arg", "f32[128]=arange", "--arg", "f32:0.5", "--save", str(saved), "--json"
    )
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["kernel"] == "add"
    assert report["races"] == []
    assert np.array_equal(np.load(saved)["arg0"], np.arange(128, dtype=np.float32) + np.float32(0.5))
    assert (
        call("emulate", str(ptx_file), "--arg", "f32[128]", "--arg", "f32:1")
        .stdout.splitlines()[-1]
        .endswith("1.0, 1.0, ...")
    )


ODD_PARITY = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry odd() {
    .reg .pred %p; .reg .b32 %r;
    .shared .align 8 .b64 barrier;
    mov.u32 %r, barrier;
    mbarrier.init.shared::cta.b64 [%r], 1;
    mbarrier.test_wait.parity.shared::cta.b64 %p, [%r], 3;
    ret;
}
"""


def test_lenient_takes_what_compilers_leave_to_the_hardware(tmp_path: Path) -> None:
    """A parity is 0 or 1 by the PTX ISA; the hardware looks at its lowest bit, and Triton relies on that."""
    (tmp_path / "odd.ptx").write_text(ODD_PARITY)
    strict = call("emulate", str(tmp_path / "odd.ptx"), "--block", "1")
    assert strict.exit_code == 1
    assert "parity" in strict.stderr
    assert call("emulate", str(tmp_path / "odd.ptx"), "--block", "1", "--lenient").exit_code == 0


def test_numerics_are_chosen_by_name(ptx_file: Path) -> None:
    arguments = ("emulate", str(ptx_file), "--arg", "f32[128]", "--arg", "f32:1", "--numerics")
    assert call(*arguments, "hardware").exit_code == 0
    refused = call(*arguments, "exact")
    assert refused.exit_code == 2
    assert "must be float32 or hardware" in refused.stderr


def test_access_outside_an_array_is_status_1(ptx_file: Path) -> None:
    done = call("emulate", str(ptx_file), "--arg", "f32[127]", "--arg", "f32:1")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_file_that_is_no_ptx_and_unknown_instructions_are_refused(tmp_path: Path, ptx_file: Path) -> None:
    (tmp_path / "x.ptx").write_text("not ptx")
    assert call("emulate", str(tmp_path / "x.ptx")).exit_code == 2
    ptx_file.write_text(ADD.replace("add.f32 %f3", "frobnicate.f32 %f3"))
    done = call("emulate", str(ptx_file), "--arg", "f32[128]", "--arg", "f32:1")
    assert done.exit_code == 2
    assert "frobnicate" in done.stderr


@pytest.mark.parametrize(
    ("text", "dtype", "shape"),
    [
        ("f32[4]", np.float32, (4,)),
        ("u8[2x3]", np.uint8, (2, 3)),
        ("bf16[2,3,4]=normal", ml_dtypes.bfloat16, (2, 3, 4)),
        ("s64[5]=ones", np.int64, (5,)),
    ],
)
def test_arrays_have_their_type_and_shape(text: str, dtype: Any, shape: tuple[int, ...]) -> None:
    made = parse_argument(text)
    assert (made.dtype, made.shape) == (np.dtype(dtype), shape)


def test_values_have_their_width(tmp_path: Path) -> None:
    assert parse_argument("u64:0x10").dtype == np.uint64
    assert parse_argument("f16:1.5") == np.float16(1.5)
    assert parse_argument("-3") == -3
    assert parse_argument("null") is None
    np.save(tmp_path / "x.npy", np.arange(3))
    assert np.array_equal(parse_argument(f"@{tmp_path}/x.npy"), np.arange(3))


@pytest.mark.parametrize("text", ["", "f32", "f33:1", "f32[4]=random", "f32[0x]", "u32:x", "f32[]", "1.5"])
def test_malformed_arguments_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_argument(text)


@pytest.mark.parametrize("text", ["", "0", "-1", "1,2,3,4", "a", "1.5"])
def test_malformed_sizes_are_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="--grid"):
        parse_sizes("--grid", text)
    assert parse_sizes("--grid", "4x2") == (4, 2, 1)


def test_cache_is_listed_shown_and_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRIDEWRIGHT_CACHE_DIR", str(tmp_path))
    made = build('extern "C" __global__ void nothing() {}', name="nothing.cu")
    assert made.folder is not None
    assert call("cache", "path").stdout == f"{tmp_path}\n"
    report = json.loads(call("cache", "list", "--json").stdout)
    assert [(entry["name"], entry["intact"]) for entry in report["entries"]] == [("nothing.cu", True)]
    key = report["entries"][0]["key"]
    assert key[:12] in call("cache", "list").stdout
    shown = json.loads(call("cache", "show", key[:8], "--json").stdout)
    assert shown["kernels"][0]["name"] == "nothing"
    assert Path(shown["files"]["kernel.ptx"]).read_text() == made.ptx
    assert "nothing.cu for sm_90a" in call("cache", "show", key[:8]).stdout
    (made.folder / "kernel.ptx").write_text("damaged")
    assert "CORRUPT" in call("cache", "list").stdout
    assert call("cache", "show", key[:8]).exit_code == 2
    assert "removed 1 kernels" in call("cache", "clear").stdout
    assert Cache().entries() == ()


HALF = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry half()
{
    .reg .pred %p<2>; .reg .b32 %r<3>; .reg .b64 %rd<2>; .shared .align 8 .b64 bar;
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    mov.u32 %r2, bar;
    @%p1 bra $ready;
    mbarrier.init.shared.b64 [%r2], 33;
$ready:
    bar.sync 0;
    mbarrier.arrive.shared.b64 %rd1, [%r2];
$again:
    mbarrier.try_wait.parity.shared.b64 %p1, [%r2], 0;
    @!%p1 bra $again;
    ret;
}
"""


def test_a_deadlock_is_drawn_where_asked_for(tmp_path: Path) -> None:
    path, page = tmp_path / "half.ptx", tmp_path / "why.html"
    path.write_text(HALF)
    done = call("emulate", str(path), "--block", "32", "--picture", str(page))
    assert done.exit_code == 1
    drawn = page.read_text(encoding="utf-8")
    assert "lacks 1 of 33 arrivals" in drawn
    assert "waits for parity 0 of mbarrier" in drawn
    assert call("emulate", str(path), "--picture", "why.png").exit_code == 2


def test_nothing_is_drawn_of_a_run_without_fault(ptx_file: Path, tmp_path: Path) -> None:
    page = tmp_path / "why.svg"
    done = call("emulate", str(ptx_file), "--arg", "f32[128]=arange", "--arg", "f32:0.5", "--picture", str(page))
    assert done.exit_code == 0
    assert not page.exists()


@pytest.mark.parametrize("arguments", [(), ("--arg", "f32[128]"), ("--arg", "null", "--arg", "1", "--arg", "2")])
def test_a_wrong_number_of_arguments_is_refused_input(ptx_file: Path, arguments: tuple[str, ...]) -> None:
    done = call("emulate", str(ptx_file), *arguments)
    assert done.exit_code == 2
    assert f"add: has 2 parameters, and --arg was given {len(arguments) // 2} times" in done.output
    assert "They are: .u64 p; .f32 x" in done.output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('extern "C" __global__ void f() {}', "is CUDA C++, and PTX is run"),
        (".version 8.0\n.target sm_90a\n", "has no kernel, which in PTX begins with .entry"),
    ],
)
def test_a_file_without_a_kernel_is_refused_with_what_it_is(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "f.ptx"
    path.write_text(text)
    done = call("emulate", str(path))
    assert done.exit_code == 2
    assert words in done.output
