"""Which factors each CTA of a tile holds, and how many atoms of them, are what CuTe's headers say (Sm1xxBlockScaledConfig, MMA_ScaleFactor).

Within a slot CuTe's C++ puts the atoms of a pair's rows of B side by side, the CuTe DSL those along K, as we do; where a factor lies in its atom, and
which step of K reads which, is the same. Needs g++, the nvidia-cutlass package (its headers) and the CUDA toolkit's headers; skipped where one is missing.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from stridewright.kernels.blackwell import derive
from stridewright.kernels.blackwell_types import instruction_k
from stridewright.kernels.config import GemmConfig, Problem
from stridewright.layout import Layout, size

from .test_blackwell_cute import include_paths

ELEMENTS = {"mxfp8": ("float_e4m3_t", "float_ue8m0_t", 32), "mxfp4": ("float_e2m1_t", "float_ue8m0_t", 32), "nvfp4": ("float_e2m1_t", "float_ue4m3_t", 16)}  # fmt: skip
CASES = [
    (format, pair, n)
    for format in ELEMENTS
    for pair, n in ((False, 64), (False, 128), (False, 256), (True, 64), (True, 128), (True, 256))
]


def config_of(format: str, pair: bool, n: int) -> GemmConfig:
    k = 128 if format == "mxfp8" else 256
    config = GemmConfig(arch="sm_100a", problem=Problem(a=format, b=format))
    return config.replace(pair=pair, tile_m=256 if pair else 128, tile_n=n, tile_k=k, stages=2)


def program() -> str:
    lines = []
    for number, (format, pair, n) in enumerate(CASES):
        element, factor, vector = ELEMENTS[format]
        tile = config_of(format, pair, n).tile
        name = ("MXF8F6F4" if format == "mxfp8" else "MXF4") + ("_2x1SM" if pair else "")
        more = "" if format == "mxfp8" else f"{vector}, "
        mma = f"SM100_MMA_{name}_SS<{element}, {element}, float, {factor}, {tile.m}, {n}, {more}UMMA::Major::K, UMMA::Major::K>"
        shape = f"Shape<Int<{tile.m}>, Int<{n}>, Int<{tile.k}>>"
        lines.append(
            f"{{ using Config = cutlass::detail::Sm1xxBlockScaledConfig<{vector}>; auto mma = make_tiled_mma({mma}{{}});"
            f' std::printf("A {number} "); print(Config::deduce_smem_layoutSFA(mma, {shape}{{}})); std::printf("\\n");'
            f' std::printf("B {number} "); print(Config::deduce_smem_layoutSFB(mma, {shape}{{}})); std::printf("\\n");'
            f' std::printf("W {number} %08x\\n", static_cast<unsigned>(MMA_Traits<{mma}>{{}}.idesc_)); }}'
        )
    body = "\n  ".join(lines)
    return f"""#include <cstdio>
#include <cute/tensor.hpp>
#include <cute/atom/mma_traits_sm100.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cutlass/detail/sm100_blockscaled_layout.hpp>
using namespace cute;
int main() {{
  {body}
}}
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], str]:
    found = include_paths()
    if found is None:
        pytest.skip("needs g++, the package nvidia-cutlass (CuTe's headers) and the CUDA toolkit's headers")
    compiler, includes = found
    folder: Path = tmp_path_factory.mktemp("cute-slots")
    source, binary = folder / "slots.cpp", folder / "slots"
    source.write_text(program())
    command = [compiler, "-std=c++17", "-O0", "-w", *includes, str(source), "-o", str(binary)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-4000:]
    text = subprocess.run([str(binary)], capture_output=True, text=True, check=True).stdout
    return {(name, int(number)): value.replace("_", "") for name, number, value in re.findall(r"^(\w) (\d+) (\S+)$", text, re.MULTILINE)}  # fmt: skip


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: "-".join(map(str, CASES[number])))
def test_a_slot_has_cute_s_factors(number: int, printed: dict[tuple[str, int], str]) -> None:
    config = config_of(*CASES[number])
    derivation = derive(config)
    scales = derivation.scales
    assert scales is not None
    assert f"{derivation.instruction_descriptor:08x}" == printed["W", number]
    for name, slot in (("A", scales.a), ("B", scales.b)):
        theirs = Layout.parse(printed[name, number])
        rows, step, steps = theirs.shape[0][0], theirs.shape[0][1], theirs.shape[2]
        assert size(rows) == 128 * slot.atoms[0]
        assert size(step) == instruction_k(config.problem)
        assert size(steps) == slot.steps
        for row in range(0, 128 * slot.atoms[0], 7):
            for instruction in range(slot.steps):
                for element in range(0, scales.step_k, scales.vector):
                    place = int(theirs((row, element), 0, instruction))
                    own = int(slot.shared(row, instruction * scales.step_k + element))
                    assert place % 512 == own % 512
                    # Atoms: theirs along the rows first, ours along K first.
                    down, along = row // 128, instruction // slot.sharing
                    assert (place // 512, own // 512) == (along * slot.atoms[0] + down, down * slot.atoms[1] + along)
