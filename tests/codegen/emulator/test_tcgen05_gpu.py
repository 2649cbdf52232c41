"""The emulator's tcgen05 against a real Blackwell, for whoever has one: `pytest -m gpu tests/codegen/emulator/test_tcgen05_gpu.py`.

The kernels are those that hold the emulator against its definitions elsewhere; here all of tensor memory is compared word for word. Nobody has
run this yet: what fails says where the model is wrong, or this program.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stridewright.codegen import launch
from stridewright.codegen.build import build
from stridewright.codegen.emulator import EmulationResult
from stridewright.codegen.launch import DevicePointer, LoadedKernel

from . import test_tcgen05_forms as forms
from . import test_tcgen05_scaled as scaled
from .tcgen05_pieces import run_blackwell

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not any(launch.gpu_available(arch)[0] for arch in ("sm_100a", "sm_103a")),
        reason="no Blackwell with tcgen05 here",
    ),
]


def run_both(
    source: str, kernel: str, grid: int, block: int, args: list[Any], shared: int = 0, **options: Any
) -> EmulationResult:
    """Runs the kernel on the emulator, whose result stays in the arguments, and on the GPU, and compares the two."""
    cupy = launch.import_cupy()
    on_device = [cupy.asarray(value) if isinstance(value, np.ndarray) and value.ndim else value for value in args]
    program = LoadedKernel(
        build(source, launch.device_arch(), strict=False).cubin,
        kernel,
        shared,
        (2, 1, 1) if "__cluster_dims__(2" in source else (1, 1, 1),
    )
    program(
        grid,
        block,
        [
            DevicePointer(value.data.ptr) if hasattr(value, "data") and hasattr(value.data, "ptr") else value
            for value in on_device
        ],
    )
    result = run_blackwell(source, kernel, grid, block, args, shared=shared, **options)
    for number, (value, there) in enumerate(zip(args, on_device, strict=True)):
        if isinstance(value, np.ndarray) and value.ndim:
            found = cupy.asnumpy(there)
            wrong = np.argwhere(found != value)
            assert not len(wrong), (
                f"argument {number}: {len(wrong)} of {value.size} words differ, the first at {wrong[0].tolist()}: the GPU has "
                f"{found[tuple(wrong[0])]:#x}, the emulator {value[tuple(wrong[0])]:#x}"
            )
    return result


@pytest.fixture(autouse=True)
def _compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "run_blackwell", run_both)


@pytest.mark.parametrize("name", forms.CASES)
def test_every_form_of_mma(name: str) -> None:
    case = forms.CASES[name]
    forms.run_case(case, forms.pattern(case.group))


@pytest.mark.parametrize("name", scaled.CASES)
def test_every_block_scaled_form(name: str) -> None:
    scaled.test_block_scaled_products(name)


def test_scale_factors_by_copies() -> None:
    scaled.test_scale_factors_come_by_copies_as_in_kernels()


def test_disabled_lanes() -> None:
    forms.test_disabled_lanes_keep_what_they_hold()
    forms.test_disabled_lanes_of_a_pair()


@pytest.mark.parametrize("m", [32, 64, 128])
def test_weight_stationary(m: int) -> None:
    scaled.test_weight_stationary_products(m, "f16", "bf16", "f32")


def normal_operand(rows: int, k: int, dtype: str, seed: int) -> NDArray[Any]:
    """Normal values of quite different sizes: every truncation shows."""
    random = np.random.default_rng(seed)
    values = random.standard_normal((rows, k)) * 2.0 ** random.uniform(-6, 6, (rows, k))
    found: NDArray[Any] = values.astype(np.float32).astype(forms.TYPES[dtype])
    return found


@pytest.mark.parametrize("dtype", ["bf16", "f16", "tf32", "e4m3", "e5m2"])
def test_the_published_numerics_bit_for_bit(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model of arXiv 2511.10909, which the emulator calls "hardware"."""
    monkeypatch.setattr(forms, "random_operand", normal_operand)
    kind = {"tf32": "tf32", "e4m3": "f8f6f4", "e5m2": "f8f6f4"}.get(dtype, "f16")
    case = replace(forms.CASES["bf16 128x64"], kind=kind, a=dtype)
    forms.run_case(case, forms.pattern(), 4, numerics="hardware")
