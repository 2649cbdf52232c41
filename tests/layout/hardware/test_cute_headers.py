"""CuTe's own headers, compiled by the host's compiler, print the traits and descriptors that ours must equal.

Needs g++, the nvidia-cutlass package (its headers) and the CUDA toolkit's headers; skipped where one is missing.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stridewright.layout import Layout, size
from stridewright.layout.hardware import (
    instruction_descriptor,
    ldmatrix_layout,
    matrix_descriptor,
    mma_a_layout,
    mma_b_layout,
    mma_d_layout,
    smem_tile,
    stmatrix_layout,
    tensor_memory_access,
    wgmma_a_layout,
    wgmma_d_layout,
)
from stridewright.layout.hardware.fragments import MMA_SHAPES, wgmma_smem_a_layout, wgmma_smem_b_layout
from stridewright.layout.hardware.tensor_memory_moves import LOAD_SHAPES, REPEATS

from .cute_oracle import layout

CUTE_TYPES = {
    "bf16": "bfloat16_t", "f16": "half_t", "tf32": "tfloat32_t", "e4m3": "float_e4m3_t", "s8": "int8_t", "f32": "float",
}  # fmt: skip


def cutlass_include() -> Path | None:
    spec = importlib.util.find_spec("cutlass_library")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(next(iter(spec.submodule_search_locations))) / "source" / "include"
    return path if (path / "cute" / "layout.hpp").exists() else None


def cuda_include() -> Path | None:
    candidates = [
        Path(p) / "include" for p in ("/usr/local/cuda", *sorted(map(str, Path("/usr/local").glob("cuda-*"))))
    ]
    nvcc = shutil.which("nvcc")
    if nvcc:
        candidates.append(Path(nvcc).resolve().parents[1] / "include")
    return next((path for path in candidates if (path / "cuda_runtime.h").exists()), None)


def mma_name(shape: Any, d: str) -> str | None:
    """CuTe's name of an mma.sync, None where it has no trait for it."""
    size_ = f"{shape.m}x{shape.n}x{shape.k}"
    t, acc = shape.dtype.upper(), d.upper()
    if shape.dtype == "f64":
        return f"SM{90 if shape.m == 16 else 80}_{size_}_F64F64F64F64_TN"
    if shape.dtype in ("e4m3", "e5m2"):
        # The fp8 shape with K = 16 is newer than these headers.
        return f"SM89_{size_}_{acc}{t}{t}{acc}_TN" if shape.k == 32 else None
    return f"SM80_{size_}_{acc}{t}{t}{acc}_TN"


MMAS = [(name, shape) for shape in MMA_SHAPES for d in shape.accumulators if (name := mma_name(shape, d)) is not None]
WGMMAS = [
    (f"SM90::GMMA::MMA_64x{n}x{k}_{d}{a}{a}_{source}{suffix}", n, a.lower(), source)
    for (d, a, k, suffix), n, source in itertools.product(
        [
            ("F32", "BF16", 16, "<SM90::GMMA::Major::K, SM90::GMMA::Major::K>"),
            ("F16", "F16", 16, "<SM90::GMMA::Major::K, SM90::GMMA::Major::K>"),
            ("F32", "TF32", 8, "_TN<>"),
            ("F32", "E4M3", 32, "_TN<>"),
            ("S32", "S8", 32, "_TN"),
        ],
        (8, 64, 96, 192, 256),
        ("SS", "RS"),
    )
]
MATRIX = [
    (f"SM{sm}_U{16 if trans else 32}x{n * 2 if trans else n}_{op}_{'T' if trans else 'N'}", op, n, trans)
    for sm, op in ((75, "LDSM"), (90, "STSM"))
    for n in (1, 2, 4)
    for trans in (False, True)
]
SWIZZLES = {"none": "INTER", "32B": "SW32", "64B": "SW64", "128B": "SW128"}
GMMA_DESCRIPTORS = [
    (dtype, major, swizzle)
    for swizzle in SWIZZLES
    for major, dtypes in (("k", ("bf16", "f16", "tf32", "e4m3", "s8")), ("mn", ("bf16", "f16")))
    for dtype in dtypes
]
UMMA_DESCRIPTORS = [
    (dtype, major, swizzle)
    for swizzle in SWIZZLES
    for major, dtypes in (("k", ("bf16", "tf32", "e4m3", "s8")), ("mn", ("bf16", "e4m3", "s8")))
    for dtype in dtypes
]
LOADS = [
    (op, shape, repeat, packed)
    for op in ("LOAD", "STORE")
    for shape, (_, _, _, largest) in LOAD_SHAPES.items()
    for repeat in REPEATS
    for packed in (False, True)
    if repeat <= largest and not (op == "STORE" and packed)
]
INSTRUCTIONS = [
    (a, d, m, n, am, bm)
    for a, d in (("bf16", "f32"), ("f16", "f16"), ("tf32", "f32"), ("e4m3", "f32"), ("s8", "s32"))
    for m, n in ((64, 8), (128, 128), (128, 256), (256, 64))
    for am in ("k", "mn")
    for bm in ("k", "mn")
]


def load_name(op: str, shape: str, repeat: int, packed: bool) -> str:
    lanes, width = ("16", "32") if shape == "16x32bx2" else shape.removesuffix("b").split("x")
    return f"SM100_TMEM_{op}_{lanes}dp{width}b{repeat}x" + ("_16b" if packed else "")


def elements(dtype: str) -> tuple[int, int]:
    """A tile of every mode: 128 rows (of MN 256 for 8 bits), 256 bytes of K."""
    return 256, 256 // {"tf32": 4, "bf16": 2, "f16": 2}.get(dtype, 1)


def program() -> str:
    lines = []
    for name, _ in MMAS:
        lines.append(f'mma<{name}>("{name}");')
    for name, *_ in WGMMAS:
        lines.append(f'mma<{name}>("{name}");')
    for name, *_ in MATRIX:
        lines.append(f'move<{name}>("{name}");')
    for op, shape, repeat, packed in LOADS:
        name = load_name(op, shape, repeat, packed)
        lines.append(f'tmem<{name}, {int(op == "LOAD")}>("{name}");')
    for space, cases in (("SM90::GMMA", GMMA_DESCRIPTORS), ("UMMA", UMMA_DESCRIPTORS)):
        function = "make_gmma_desc" if space.startswith("SM90") else "make_umma_desc"
        for dtype, major, swizzle in cases:
            rows, k = elements(dtype)
            t, mode = CUTE_TYPES[dtype], f"{space}::Major::{major.upper()}"
            atom = f"{space}::Layout_{major.upper()}_{SWIZZLES[swizzle]}_Atom<{t}>{{}}"
            first = f"Shape<Int<{rows}>, Int<{32 * k // 256}>>{{}}"
            lines.append(
                "{ auto tile = tile_to_shape(" + atom + f", Shape<Int<{rows}>, Int<{k}>>{{}});"
                f" auto part = local_tile(make_tensor(make_smem_ptr(static_cast<{t}*>(nullptr)), tile), {first}, make_coord(0, 0));"
                f' std::printf("DESC {function} {dtype} {major} {swizzle} %016llx\\n",'
                f" static_cast<unsigned long long>({space}::{function}<{mode}>(part).desc_)); }}"
            )
    for a, d, m, n, am, bm in INSTRUCTIONS:
        arguments = f"{CUTE_TYPES[a]}, {CUTE_TYPES[a]}, {CUTE_TYPES.get(d, 'int32_t')}, {m}, {n}"
        majors = f"UMMA::Major::{am.upper()}, UMMA::Major::{bm.upper()}"
        lines.append(
            f'std::printf("IDESC {a} {d} {m} {n} {am} {bm} %08x\\n",'
            f" static_cast<unsigned>(UMMA::make_instr_desc<{arguments}, {majors}>()));"
        )
    body = "\n  ".join(lines)
    return f"""#include <cstdio>
#include <cute/tensor.hpp>
#include <cute/atom/mma_traits_sm80.hpp>
#include <cute/atom/mma_traits_sm89.hpp>
#include <cute/atom/mma_traits_sm90.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/atom/mma_traits_sm100.hpp>
#include <cute/atom/copy_traits_sm90.hpp>
#include <cute/atom/copy_traits_sm100.hpp>
using namespace cute;
template <class L> void show(const char* key, L const& l) {{ std::printf(" %s ", key); print(l); std::printf("\\n"); }}
template <class T> void mma(const char* name) {{
  std::printf("ATOM %s\\n", name);
  show("A", typename MMA_Traits<T>::ALayout{{}});
  show("B", typename MMA_Traits<T>::BLayout{{}});
  show("D", typename MMA_Traits<T>::CLayout{{}});
}}
template <class T> void move(const char* name) {{
  std::printf("ATOM %s\\n", name);
  show("src", typename Copy_Traits<T>::SrcLayout{{}});
  show("dst", typename Copy_Traits<T>::DstLayout{{}});
}}
template <class T, bool load> void tmem(const char* name) {{
  std::printf("ATOM %s\\n", name);
  show("id", typename Copy_Traits<T>::ValID{{}});
  if constexpr (load) show("registers", typename Copy_Traits<T>::DstLayout{{}});
  else show("registers", typename Copy_Traits<T>::SrcLayout{{}});
}}
int main() {{
  {body}
}}
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler, cutlass, cuda = shutil.which("g++"), cutlass_include(), cuda_include()
    if compiler is None:
        pytest.skip("no g++ to compile CuTe's headers with")
    if cutlass is None:
        pytest.skip("the package nvidia-cutlass, which ships CuTe's headers, is not installed")
    if cuda is None:
        pytest.skip("no CUDA toolkit headers, which CuTe's include")
    folder = tmp_path_factory.mktemp("cute")
    source, binary = folder / "traits.cpp", folder / "traits"
    source.write_text(program())
    command = [compiler, "-std=c++17", "-O0", "-w", f"-I{cutlass}", f"-I{cuda}", f"-I{cuda / 'cccl'}"]
    built = subprocess.run([*command, str(source), "-o", str(binary)], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-4000:]
    return subprocess.run([str(binary)], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def atoms(printed: str) -> dict[str, dict[str, Layout]]:
    found: dict[str, dict[str, Layout]] = {}
    name = ""
    for line in printed.splitlines():
        if line.startswith("ATOM "):
            name = line.removeprefix("ATOM ")
            found[name] = {}
        elif line.startswith(" ") and name:
            key, text = line.split()
            found[name][key] = layout(text)
    return found


def same(ours: Layout, theirs: Layout) -> bool:
    count = int(size(theirs))
    every = np.arange(count)
    return int(size(ours)) == count and bool(np.array_equal(ours(every), theirs(every)))


def bits(ours: Layout, width: int = 16) -> Layout:
    """A layout of (thread, values of ``width`` bits) as one of (thread, bits)."""

    def scaled(stride: Any) -> Any:
        return tuple(map(scaled, stride)) if isinstance(stride, tuple) else stride * width

    values, strides = ours.shape[1], scaled(ours.stride)  # type: ignore[index]
    return Layout((ours.shape[0], (width, values)), (strides[0], (1, strides[1])))  # type: ignore[index]


def test_mma_sync_traits(atoms: dict[str, dict[str, Layout]]) -> None:
    for name, shape in MMAS:
        arguments = (shape.m, shape.n, shape.k, shape.dtype)
        assert same(mma_a_layout(*arguments), atoms[name]["A"]), name
        assert same(mma_b_layout(*arguments), atoms[name]["B"]), name
        assert same(mma_d_layout(*arguments), atoms[name]["D"]), name


def test_wgmma_traits(atoms: dict[str, dict[str, Layout]]) -> None:
    for name, n, dtype, source in WGMMAS:
        a = wgmma_a_layout(dtype) if source == "RS" else wgmma_smem_a_layout(dtype)
        assert same(a, atoms[name]["A"]), name
        assert same(wgmma_smem_b_layout(n, dtype), atoms[name]["B"]), name
        assert same(wgmma_d_layout(n, dtype), atoms[name]["D"]), name


def test_ldmatrix_and_stmatrix_traits(atoms: dict[str, dict[str, Layout]]) -> None:
    for name, op, matrices, trans in MATRIX:
        side = "dst" if op == "LDSM" else "src"
        ours = (ldmatrix_layout if op == "LDSM" else stmatrix_layout)(matrices, trans)
        assert same(bits(ours), atoms[name][side]), name


def test_tensor_memory_loads_and_stores_of_every_repeat(atoms: dict[str, dict[str, Layout]]) -> None:
    for op, shape, repeat, packed in LOADS:
        access = tensor_memory_access(shape, repeat, packed)
        theirs = atoms[load_name(op, shape, repeat, packed)]
        assert same(access.value_id, theirs["id"]), (op, shape, repeat, packed)
        assert same(access.registers, theirs["registers"]), (op, shape, repeat, packed)


def test_matrix_descriptors_of_every_mode_and_type(printed: str) -> None:
    seen = re.findall(r"^DESC (\w+) (\w+) (\w+) (\w+) ([0-9a-f]{16})$", printed, re.MULTILINE)
    assert len(seen) == len(GMMA_DESCRIPTORS) + len(UMMA_DESCRIPTORS)
    for function, dtype, major, swizzle, word in seen:
        arch = "sm_90a" if function == "make_gmma_desc" else "sm_100a"
        if arch == "sm_100a" and dtype == "tf32" and major == "mn":
            continue
        tile = smem_tile(swizzle, major, dtype, *elements(dtype))
        assert f"{matrix_descriptor(tile, dtype, arch, major):016x}" == word, (function, dtype, major, swizzle)


def test_instruction_descriptors(printed: str) -> None:
    seen = re.findall(r"^IDESC (\w+) (\w+) (\d+) (\d+) (\w+) (\w+) ([0-9a-f]{8})$", printed, re.MULTILINE)
    assert len(seen) == len(INSTRUCTIONS)
    kinds = {"bf16": "f16", "f16": "f16", "tf32": "tf32", "e4m3": "f8f6f4", "s8": "i8"}
    for a, d, m, n, am, bm, word in seen:
        ours = instruction_descriptor(kinds[a], int(m), int(n), a, a, d, am, bm)
        assert f"{ours:08x}" == word, (a, d, m, n, am, bm)
