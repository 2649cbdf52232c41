"""The NVRTC binding: what comes back is whole, what is wrong says so."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from stridewright.codegen import nvrtc

ADD = 'extern "C" __global__ void add_one(float *p) { p[threadIdx.x] += 1.0f; }'


@pytest.fixture
def fresh_library(monkeypatch: pytest.MonkeyPatch):
    """The choice of a library is remembered for the process: forget it before and after."""
    nvrtc.library.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    nvrtc.library.cache_clear()


def elf_extent(cubin: bytes) -> int:
    """The last byte an ELF file's own headers speak of (System V ABI, ELF-64: section and program tables and
    contents).
    """
    program_offset, section_offset = struct.unpack_from("<QQ", cubin, 32)
    program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", cubin, 54)
    end = max(program_offset + program_size * program_count, section_offset + section_size * section_count)
    for index in range(section_count):
        header = section_offset + index * section_size
        kind = struct.unpack_from("<I", cubin, header + 4)[0]
        offset, size = struct.unpack_from("<QQ", cubin, header + 24)
        if kind != 8:  # SHT_NOBITS occupies nothing in the file
            end = max(end, offset + size)
    return end


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_ptx_and_cubin_come_whole_from_one_program(arch: str) -> None:
    made = nvrtc.compile(ADD, arch)
    assert f".target {arch}" in made.ptx
    assert ".entry add_one(" in made.ptx
    assert made.ptx.rstrip().endswith("}")
    assert "\0" not in made.ptx
    assert made.cubin[:4] == b"\x7fELF"
    assert elf_extent(made.cubin) == len(made.cubin)
    assert nvrtc.OLDEST_VERSION <= made.version < nvrtc.FIRST_REFUSED_VERSION
    assert made.seconds > 0


def test_line_information_names_the_given_file() -> None:
    made = nvrtc.compile(ADD, "sm_90a", ("-lineinfo",), name="adder.cu")
    assert "adder.cu" in made.ptx
    assert ".loc" in made.ptx


def test_compile_error_carries_the_log_and_the_line() -> None:
    with pytest.raises(nvrtc.CompileError, match="undefined_name") as caught:
        nvrtc.compile('extern "C" __global__ void k() { undefined_name(); }', name="broken.cu")
    assert "broken.cu(1)" in caught.value.log
    assert caught.value.arch == "sm_90a"


def test_instruction_of_another_architecture_is_a_compile_error() -> None:
    source = 'extern "C" __global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }'
    nvrtc.compile(source, "sm_90a")
    with pytest.raises(nvrtc.CompileError, match="wgmma"):
        nvrtc.compile(source, "sm_100a")


@pytest.mark.parametrize(
    ("instruction", "arch", "other"),
    [("tcgen05.fence::before_thread_sync;", "sm_90a", "sm_100a"), ("wgmma.fence.sync.aligned;", "sm_100a", "sm_90a")],
)
def test_the_architecture_that_has_an_instruction_is_named(instruction: str, arch: str, other: str) -> None:
    source = f'extern "C" __global__ void kernel() {{ asm volatile("{instruction}"); }}'
    with pytest.raises(nvrtc.CompileError, match=f"is for {other}: build\\(source, arch='{other}'\\)"):
        nvrtc.compile(source, arch)
    nvrtc.compile(source, other)


@pytest.mark.parametrize("arch", ["", "90a", "hopper", "sm_90a;rm", "compute_90", "sm_12345"])
def test_unknown_architecture_is_refused_by_name(arch: str) -> None:
    with pytest.raises(ValueError, match="arch="):
        nvrtc.compile(ADD, arch)


@pytest.mark.parametrize("option", ["-arch=sm_90", "--gpu-architecture=sm_90a", "--arch=sm_90"])
def test_architecture_among_the_options_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match="a second time"):
        nvrtc.compile(ADD, "sm_90a", (option,))


def test_source_must_be_text() -> None:
    with pytest.raises(TypeError, match="not bytes"):
        nvrtc.compile(ADD.encode())  # type: ignore[arg-type]


def test_missing_nvrtc_names_the_pip_command(fresh_library: pytest.MonkeyPatch) -> None:
    fresh_library.setattr(nvrtc, "_candidates", lambda: iter(()))
    fresh_library.setattr(nvrtc.platform, "system", lambda: "Linux")
    with pytest.raises(nvrtc.NvrtcMissingError, match=r"pip install 'stridewright\[nvrtc\]'"):
        nvrtc.compile(ADD)


def test_where_there_is_no_wheel_the_message_says_what_still_works(fresh_library: pytest.MonkeyPatch) -> None:
    fresh_library.setattr(nvrtc, "_candidates", lambda: iter(()))
    fresh_library.setattr(nvrtc.platform, "system", lambda: "Darwin")
    with pytest.raises(nvrtc.NvrtcMissingError, match=r"no NVRTC wheel for Darwin.*stridewright emulate"):
        nvrtc.library()


def test_unusable_library_is_named_with_its_reason(fresh_library: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "libnvrtc.so.13"
    broken.write_bytes(b"not a library")
    fresh_library.setenv("STRIDEWRIGHT_NVRTC", str(broken))
    with pytest.raises(nvrtc.NvrtcMissingError, match=r"not usable: .*libnvrtc\.so\.13"):
        nvrtc.library()


def test_unsupported_version_is_refused_with_its_number(fresh_library: pytest.MonkeyPatch) -> None:
    fresh_library.setattr(nvrtc, "OLDEST_VERSION", (13, 99))
    with pytest.raises(nvrtc.NvrtcMissingError, match=r"version 1[23]\.\d+"):
        nvrtc.library()


def test_importing_the_binding_loads_no_library() -> None:
    code = (
        "import stridewright.codegen.nvrtc as n; n.library.cache_info().currsize and exit(1);"
        "exit('libnvrtc' in open('/proc/self/maps').read())"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
