"""The build policy: programs the assembler had to repair or to slow down are refused, with its own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from stridewright.codegen import build as build_module
from stridewright.codegen.build import BuildError, build, complaints, resources
from stridewright.codegen.cache import Cache
from stridewright.codegen.gemm import Gemm
from stridewright.codegen.nvrtc import CompileError

FENCE = 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");'
COMMIT = 'asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");'
WAIT = 'asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");'
WGMMA = (
    'asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"'
    ' : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));'
)


def multiply(body: str, bounds: str = "__launch_bounds__(128, 1)") -> str:
    return (
        f'extern "C" __global__ void {bounds} multiply(float *p, unsigned long long a, unsigned long long b) {{'
        f" float d[4] = {{0, 0, 0, 0}}; {body} for (int i = 0; i < 4; i++) p[threadIdx.x * 4 + i] = d[i]; }}"
    )


def test_correct_wgmma_sequence_builds_with_its_figures() -> None:
    made = build(multiply(FENCE + WGMMA + COMMIT + WAIT), use_cache=False)
    kernel = made.kernel("multiply")
    assert made.complaints == ()
    assert 0 < kernel.registers <= 255
    assert (kernel.stack_bytes, kernel.spill_store_bytes, kernel.spill_load_bytes) == (0, 0, 0)
    assert ".loc" in made.ptx
    with pytest.raises(KeyError, match="multiply"):
        made.kernel("other")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        pytest.param(multiply(FENCE + WGMMA + COMMIT), "C7517", id="wait-forgotten"),
        pytest.param(multiply(FENCE + WGMMA + "d[0] += p[0];" + COMMIT + WAIT), "C7517", id="read-before-wait"),
        pytest.param(
            multiply(FENCE + f"for (int i = 0; i < b; i++) {{ {WGMMA} if (p[i] > 0) d[1] = p[i]; }}" + COMMIT + WAIT),
            "C7511",
            id="serialised",
        ),
        pytest.param(
            'extern "C" __global__ void k() { asm volatile("setmaxnreg.dec.sync.aligned.u32 24;"); }',
            "C7508",
            id="setmaxnreg-ignored",
        ),
        pytest.param(
            'extern "C" __global__ void k(float *p, int n) { float a[100];'
            " for (int i = 0; i < 100; i++) a[i] = p[i * n]; for (int i = 0; i < 1000; i++) a[(i * n) % 100] += p[i];"
            " p[0] = a[n]; }",
            "400 bytes stack frame",
            id="stack-frame",
        ),
        pytest.param(
            'extern "C" __global__ void __launch_bounds__(1024, 2) k(float *p) { float a[200];'
            "\n#pragma unroll\n for (int i = 0; i < 200; i++) a[i] = p[i * 77]; __syncthreads();"
            "\n#pragma unroll\n for (int i = 0; i < 200; i++) p[i * 55] = a[i] * a[(i + 77) % 200]; }",
            "spill stores",
            id="spills",
        ),
    ],
)
def test_what_the_assembler_complains_of_fails_the_build(source: str, said: str, tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    with pytest.raises(BuildError, match="forbids its use") as caught:
        build(source, cache=cache)
    assert any(said in line for line in caught.value.lines)
    assert cache.entries() == ()
    tolerated = build(source, cache=cache, strict=False)
    assert tolerated.complaints == caught.value.lines
    with pytest.raises(BuildError):
        build(source, cache=cache)  # the rule holds for what comes from the cache too


@pytest.mark.parametrize("code", ["C7508", *(f"C{number}" for number in range(7510, 7521))])
def test_every_code_of_the_rule_is_matched(code: str) -> None:
    assert complaints(f"ptxas info    : ({code}) whatever it says in function 'k'") != ()


@pytest.mark.parametrize("code", ["C7507", "C7509", "C7521", "C7602", "C751"])
def test_other_codes_are_not(code: str) -> None:
    assert complaints(f"ptxas info    : ({code}) whatever it says in function 'k'") == ()


def test_a_renumbered_complaint_is_known_by_its_words() -> None:
    line = "ptxas info    : (C7999) Potential Performance Loss: wgmma.mma_async instructions are serialized"
    assert complaints(line) == (line,)


def test_resources_are_told_apart_by_kernel_and_skip_device_functions() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for helper
ptxas         .     64 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Function properties for first
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 3 barriers, 1024 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Function properties for second
ptxas         .     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers"""
    first, second = resources(log)
    assert (first.name, first.registers, first.barriers, first.static_shared_bytes) == ("first", 168, 3, 1024)
    assert first.stack_bytes == 0
    assert (second.name, second.registers, second.barriers, second.static_shared_bytes) == ("second", 255, 0, 0)
    assert (second.stack_bytes, second.spill_store_bytes, second.spill_load_bytes) == (8, 4, 12)
    assert len(complaints(log)) == 2


def test_static_shared_memory_is_counted() -> None:
    source = (
        'extern "C" __global__ void k(float *p, int n) { __shared__ float s[96]; s[threadIdx.x] = p[threadIdx.x];'
        " __syncthreads(); p[threadIdx.x] = s[n]; }"
    )
    assert build(source, use_cache=False).kernel("k").static_shared_bytes == 96 * 4


def test_second_build_comes_from_the_cache_and_is_the_same(tmp_path: Path) -> None:
    source = multiply(FENCE + WGMMA + COMMIT + WAIT)
    first = build(source, cache=Cache(tmp_path))
    second = build(source, cache=Cache(tmp_path))
    assert (first.cached, second.cached) == (False, True)
    assert (first.ptx, first.cubin, first.log, first.kernels) == (second.ptx, second.cubin, second.log, second.kernels)
    assert second.cubin_path is not None
    assert second.cubin_path.read_bytes() == first.cubin
    assert second.folder is not None
    assert (second.folder / "kernel.cu").read_text() == source


def test_everything_that_goes_in_is_part_of_the_key(tmp_path: Path) -> None:
    source = multiply(FENCE + WGMMA + COMMIT + WAIT)
    cache = Cache(tmp_path)
    build(source, cache=cache)
    assert not build(source + "\n", cache=cache).cached
    assert not build(source, options=("-DX=1",), cache=cache).cached
    assert not build(source, name="other.cu", cache=cache).cached
    assert build(source, cache=cache).cached
    assert len(cache.entries()) == 4


def test_another_compiler_does_not_find_the_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = multiply(FENCE + WGMMA + COMMIT + WAIT)
    build(source, cache=Cache(tmp_path))
    loaded = build_module.nvrtc.library()
    other = type(loaded)(loaded.path, loaded.version, "nvrtc-99.0-1", loaded.handle)
    monkeypatch.setattr(build_module.nvrtc, "library", lambda: other)
    assert not build(source, cache=Cache(tmp_path)).cached


def test_corrupt_cubin_is_rebuilt(tmp_path: Path) -> None:
    source = multiply(FENCE + WGMMA + COMMIT + WAIT)
    first = build(source, cache=Cache(tmp_path))
    assert first.cubin_path is not None
    first.cubin_path.write_bytes(first.cubin[:-1])
    again = build(source, cache=Cache(tmp_path))
    assert not again.cached
    assert again.cubin == first.cubin
    assert build(source, cache=Cache(tmp_path)).cached


def test_a_wrong_program_leaves_nothing_behind(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    with pytest.raises(CompileError):
        build("this is not CUDA", cache=cache)
    assert cache.entries() == ()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"]


@pytest.mark.parametrize("standard", ["-std=c++14", "-std=c++17"])
def test_generated_source_alone_compiles_with_the_options_that_cupy_adds(
    standard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # RawModule(code=source, options=("-arch=sm_90a",)): CuPy adds a standard and, last, the device's plain
    # architecture.
    monkeypatch.setattr(build_module.nvrtc, "_check_request", lambda *request: None)
    source = Gemm(512, 512, 256).source
    assert "#include" not in source
    made = build_module.nvrtc.compile(source, "sm_90a", (standard, "-arch=sm_90"))
    assert ".target sm_90a" in made.ptx
