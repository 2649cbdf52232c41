"""What ``stridewright gemm`` does for block-scaled formats: draws and quantises the operands, runs the product, checks it.

The reference is the float64 product of what was quantised: what quantising itself loses is no error of the kernel.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from stridewright.codegen.quantise import BlockScaled, quantise, scaled_format
from stridewright.codegen.reference import expected

from .general_run import Options, checked

if TYPE_CHECKING:
    from stridewright.codegen.blackwell_scaled import BlackwellScaledGemm

_PLAIN = ("scales", "promote", "batch", "groups")
"""Options that have no meaning or no kernel here."""
_UNCHECKED = ("aux", "amax", "gated", "expression")
"""Options that the kernels serve and this command does not check."""


def draw(rows: int, k: int, name: str, values: str, random: np.random.Generator) -> BlockScaled:
    """A quantised matrix (rows, k): normal numbers, of nvfp4 with a scale for all of it; or whole numbers from -4 to 4 under
    factors of few bits, whose sums are exact.

    >>> draw(2, 64, "nvfp4", "integers", np.random.default_rng(0)).shape
    (2, 64)
    """
    form = scaled_format(name)
    if values == "integers":
        codes = form.elements.nearest(random.integers(-4, 5, (rows, k)).astype(np.float64))
        shape = (rows, k // form.vector)
        drawn = 126 + random.integers(0, 3, shape) if form.scale == "ue8m0" else 0x30 + 4 * random.integers(0, 5, shape)
        return BlockScaled(form, codes, drawn.astype(np.uint8))
    return quantise(random.standard_normal((rows, k)), name, tensor_scale="amax" if form.scale == "ue4m3" else None)


Operands = tuple[BlockScaled, BlockScaled, dict[str, Any]]
"""A, B and what else the call is given."""


def operands(gemm: BlackwellScaledGemm, options: Options, values: str, seed: int) -> Operands:
    """The operands that the options ask for. ValueError for an option that these formats do not go with."""
    plain = Options()
    refused = [name for name in (*_PLAIN, *_UNCHECKED) if getattr(options, name) != getattr(plain, name)]
    if refused:
        why = "is not served with block-scaled formats, whose factors are drawn with them"
        if refused[0] in _UNCHECKED:
            why = "is not checked by this command with block-scaled formats; Gemm(...) of Python serves it"
        raise ValueError(f"--{refused[0]}: {why}")
    random = np.random.default_rng(seed)
    a, b = (
        draw(rows, gemm.k, getattr(gemm.problem, name), values, random) for rows, name in ((gemm.m, "a"), (gemm.n, "b"))
    )
    others: dict[str, Any] = {}
    if options.alpha:
        others["alpha"] = 0.5
    if options.c:
        others |= {"c": random.integers(-2, 3, (gemm.m, gemm.n)).astype(np.float32), "beta": -0.5}
    if options.bias:
        shape = (gemm.m, 1) if options.bias == "m" else (gemm.n,)
        others["bias"] = random.integers(-2, 3, shape).astype(np.float32)
    return a, b, others


def run(
    gemm: BlackwellScaledGemm, options: Options, where: str, values: str, seed: int, drawn: Operands | None = None
) -> dict[str, Any]:
    """Runs and checks: the fields of the report that differ from a plain run's, ``check`` among them. ``drawn`` is what
    ``operands`` gave, where it was called already. ValueError for an option that these formats do not go with.
    """
    a, b, others = drawn or operands(gemm, options, values, seed)
    found: dict[str, Any] = {"races": [], "conflicts": [], "instructions": None, "seconds": {}}
    start = time.perf_counter()
    if where == "emulator":
        emulation = gemm.emulate(a, b, **others)
        d = emulation.d
        found |= {"races": list(emulation.races), "conflicts": list(emulation.conflicts)}
        found["instructions"] = emulation.result.instructions
    else:
        d = _launched(gemm, a, b, others)
    found["seconds"]["run"] = time.perf_counter() - start
    whole = a.tensor_scale * b.tensor_scale
    left, right = a.values() / a.tensor_scale, b.values() / b.tensor_scale
    more = {name: others[name] for name in ("c", "beta", "bias") if name in others}
    step = 0.0 if values == "integers" else 2.0**-23
    should = expected(
        left, right, gemm.problem.d, step=step, alpha=whole * others.get("alpha", 1.0), act=options.activation, **more
    )
    found["check"] = checked(d, should.d, should.allowed, gemm.problem.d)
    return found


def _launched(gemm: BlackwellScaledGemm, a: BlockScaled, b: BlockScaled, others: dict[str, Any]) -> Any:
    """D from the current GPU, in numpy's memory."""
    from stridewright.codegen.launch import import_cupy

    cupy = import_cupy()
    parts = [cupy.asarray(np.ascontiguousarray(x).view(np.uint8)) for x in (a.data, b.data, a.scales, b.scales)]
    given = {name: cupy.asarray(x) if isinstance(x, np.ndarray) else x for name, x in others.items()}
    given["alpha"] = others.get("alpha", 1.0) * a.tensor_scale * b.tensor_scale
    d = gemm(parts[0], parts[1], scale_a=parts[2], scale_b=parts[3], **given)
    cupy.cuda.Device().synchronize()
    return cupy.asnumpy(d)
