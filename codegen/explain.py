"""The derivation of a kernel in words, as ``Gemm.explain()`` and ``stridewright explain`` print it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .select import SMS, modelled_columns

if TYPE_CHECKING:
    from stridewright.layout.hardware import TensorMap

    from .gemm import Gemm


def explain(gemm: Gemm) -> str:
    """Layouts, tensor maps, descriptors, shared memory, registers, bank conflicts and waves of this GEMM, as text.

    >>> from stridewright import Gemm
    >>> "Bank conflicts: 4 wavefronts a store, 4 are ideal" in explain(Gemm(512, 512, 256))
    True
    """
    config, derivation = gemm.config, gemm.derivation
    lines = [f"D[{gemm.m}, {gemm.n}] = A[{gemm.m}, {gemm.k}] B[{gemm.n}, {gemm.k}]^T   {config.name}", ""]
    for number, step in enumerate(derivation.steps, start=1):
        lines.append(f"{number}. {step.title}")
        lines += [f"   {what}:  {layout}" for what, layout in step.layouts]
        lines += [f"   {note}" for note in step.notes]
        lines += [
            f"   {constant.name} = {constant.value:#018x}"
            if constant.hexadecimal
            else f"   {constant.name} = {constant.value}"
            for constant in step.constants
        ]
        lines += [
            f"   {function.name}({', '.join(function.parameters)}) -> {function.unit}:  {function.layout}"
            for function in step.functions
        ]
        lines.append("")
    lines += [f"{len(derivation.steps) + 1}. The tensor maps of this problem", *_maps(gemm), ""]
    lines += [f"{len(derivation.steps) + 2}. Waves", *_waves(gemm)]
    return "\n".join(lines)


def _maps(gemm: Gemm) -> list[str]:
    maps = gemm.derivation.tensor_maps(gemm.m, gemm.n, gemm.k)
    named: list[tuple[str, TensorMap | None]] = [("A", maps.a), ("B", maps.b), ("D", maps.d)]
    if maps.d_tail is not maps.d:
        named.append(("D, last panel of a tile", maps.d_tail))
    lines = []
    for name, tensor_map in named:
        if tensor_map is None:
            lines.append(f"   {name}: none, plain stores")
            continue
        lines.append(
            f"   {name}: dims {tensor_map.shape}, strides {tensor_map.strides_bytes} bytes, box {tensor_map.box}, swizzle {tensor_map.swizzle}, {tensor_map.box_bytes} bytes a box"
        )
    return lines


def _waves(gemm: Gemm) -> list[str]:
    from .blackwell_gemm import BlackwellGemm, waves

    if isinstance(gemm, BlackwellGemm):
        return waves(gemm)
    config = gemm.config
    rows, columns = -(-gemm.m // config.tile.m), -(-gemm.n // config.tile.n)
    tiles = rows * columns
    turns = tiles / SMS
    last = tiles - (-(-tiles // SMS) - 1) * SMS
    useful = gemm.m * gemm.n / (rows * config.tile.m * columns * config.tile.n)
    steps = -(-gemm.k // config.tile.k)
    return [
        f"   {rows} x {columns} = {tiles} tiles on {SMS} SMs: {turns:.2f} waves, {last} of {SMS} SMs busy in the last.",
        f"   {useful:.1%} of the multiplied rows and columns lie inside D; {steps} k-steps of {config.tile.k} a tile.",
        f"   The selection model gives {modelled_columns(config):.0f} columns an SM one after another (it ranks configurations).",
    ]
