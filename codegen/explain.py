"""The derivation of a kernel in words, as ``Gemm.explain()`` and ``stridewright explain`` print it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .select import many_turns, modelled_columns
from .speed_of_light import Device, Floor, require_device, speed_of_light

if TYPE_CHECKING:
    from stridewright.kernels.config import GemmConfig
    from stridewright.layout.hardware import TensorMap

    from .blackwell_gemm import BlackwellKernel
    from .gemm import Gemm


def explain(gemm: Gemm, device: Device | None = None) -> str:
    """Layouts, tensor maps, descriptors, shared memory, registers, bank conflicts and waves of this GEMM, and what bounds it
    on ``device`` (an H200, or of a Blackwell kernel a B200, if None), as text. ValueError for a device that does not run it.

    >>> from stridewright import Gemm
    >>> "Bank conflicts: 4 wavefronts a store, 4 are ideal" in explain(Gemm(512, 512, 256))
    True
    """
    config, derivation = gemm.config, gemm.derivation
    device = require_device(config.arch, device)
    lines = [
        f"D[{gemm.m}, {gemm.n}] = A[{gemm.m}, {gemm.k}] B[{gemm.n}, {gemm.k}]^T   {config.name}",
        *_chosen(gemm),
        "",
    ]
    for number, step in enumerate(derivation.steps, start=1):
        lines.append(f"{number}. {step.title}")
        lines += [f"   {what}:  {layout}" for what, layout in step.layouts]
        lines += [f"   {note}" for note in step.notes]
        lines += [
            f"   {constant.name} = {constant.value:#0{18 if constant.type == 'uint64' else 10}x}"
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
    lines += [f"{len(derivation.steps) + 2}. Waves", *_waves(gemm, device)]
    return "\n".join(lines)


def _chosen(gemm: Gemm) -> list[str]:
    """Where the configuration of a plain Hopper product comes from."""
    from . import tuned
    from .gemm import Gemm as Plain

    if type(gemm) is not Plain:
        return []
    if gemm.configured:
        return ["The configuration was given."]
    known = tuned.lookup(gemm.problem, arch=gemm.config.arch, load=gemm.load)
    if known is None:
        return [f"Chosen by the selection model, which has no {gemm.load} of its own: this shape was not measured."]
    bursts = tuned.lookup(gemm.problem, arch=gemm.config.arch)
    same = gemm.load != "bursts" and bursts is not None and bursts.config == known.config
    return [f"Chosen for load {gemm.load} from measured times{', as for bursts' if same else ''}."]


def _maps(gemm: Gemm) -> list[str]:
    maps = gemm.derivation.tensor_maps(gemm.m, gemm.n, gemm.k)
    named: list[tuple[str, TensorMap | None]] = [("A", maps.a), ("B", maps.b), ("D", maps.d)]
    if maps.d_tail is not maps.d:
        named.append(("D, last panel of a tile", maps.d_tail))
    if gemm.config.on_blackwell and gemm.derivation.scales is not None:  # type: ignore[attr-defined]
        named += zip(("factors of A", "factors of B"), gemm.derivation.scale_maps(gemm.m, gemm.n, gemm.k), strict=True)  # type: ignore[attr-defined]
    lines = []
    for name, tensor_map in named:
        if tensor_map is None:
            lines.append(f"   {name}: none, plain stores")
            continue
        lines.append(
            f"   {name}: dims {tensor_map.shape}, strides {tensor_map.strides_bytes} bytes, box {tensor_map.box}, swizzle {tensor_map.swizzle}, {tensor_map.box_bytes} bytes a box"
        )
    cluster = gemm.config.cluster
    for name, sharing in (("A", cluster.n), ("B", cluster.m)):
        if sharing > 1:
            lines.append(
                f"   {name} is multicast: {sharing} tiles of a cluster need the same slot of it, each loads a part of it for all, and each barrier "
                "expects the whole slot."
            )
    return lines


def _waves(gemm: Gemm, device: Device) -> list[str]:
    from .blackwell_gemm import BlackwellKernel, waves

    if isinstance(gemm, BlackwellKernel):
        from .cycles_report import modelled_cycles

        verdict = modelled_cycles(gemm.config, rung=gemm.rung)
        return [*waves(gemm), *(f"   {line}" for line in [*_blackwell_light(gemm, device), *verdict.lines()])]
    config, (m, n), sms = gemm.config, gemm.kernel_sizes, device.sms
    rows, columns = -(-m // config.tile.m), -(-n // config.tile.n)
    tiles = rows * columns
    turns = tiles / sms
    last = tiles - (-(-tiles // sms) - 1) * sms
    useful = m * n / (rows * config.tile.m * columns * config.tile.n)
    steps = -(-gemm.k // config.tile.k)
    division = gemm.division(sms)
    lines = [
        f"{rows} x {columns} = {tiles} tiles on {sms} SMs: {turns:.2f} waves, {last} of {sms} SMs busy in the last.",
        f"{useful:.1%} of the multiplied rows and columns lie inside D; {steps} k-steps of {config.tile.k} a tile.",
        *speed_of_light(gemm, device).lines(),
        f"The selection model gives {_modelled(config, sms)} (it ranks configurations).",
    ]
    if division.shared_blocks:
        lines.append(
            f"{division.shared_blocks} of {division.blocks} blocks of tiles are divided among {division.clusters} "
            f"{'clusters' if division.cluster > 1 else 'CTAs'}: {4 * (division.partial_floats + division.counters)} bytes "
            "of workspace."
        )
    if division.placed:
        lines.append(
            f"{division.clusters} {'clusters' if division.cluster > 1 else 'CTAs'} take their numbers when they start, neighbouring ones in a "
            f"GPC, whose SMs share reads of L2: {4 * division.counters} bytes of workspace."
        )
    return [f"   {line}" for line in lines]


def _blackwell_light(gemm: BlackwellKernel, device: Device) -> list[str]:
    """Peak, ridge and floor of a Blackwell problem in its own formats; of one product where a launch has several."""
    from stridewright.layout.hardware.dtypes import data_type

    from .cycles_kernels import RATES, formats_of

    problem = gemm.config.problem
    formats = formats_of(problem)
    rate = device.peak() * RATES[formats.kind]
    factors = (gemm.m + gemm.n) * gemm.k / formats.vector if formats.vector else 0.0
    moved = gemm.k * (gemm.m * formats.there[0] + gemm.n * formats.there[1]) + factors
    moved += gemm.m * gemm.n * data_type(problem.d).bits / 8
    operations = 2.0 * gemm.m * gemm.n * gemm.k
    least = Floor(1e6 * operations / rate, 1e6 * moved / device.bytes_per_second)
    return [
        f"{device.name}: {rate / 1e12:.0f} TFLOP/s of these formats, ridge {rate / device.bytes_per_second:.0f} flop/byte; this shape has "
        f"{operations / moved:.0f}, so {least.bound} bound it.",
        f"At least {least.us:.2f} us: {least.compute_us:.2f} at peak, {least.memory_us:.2f} to move A, B and D once.",
    ]


def _modelled(config: GemmConfig, sms: int) -> str:
    problem = config.problem
    if problem.m is not None and problem.n is not None and many_turns(problem.m, problem.n, sms):
        return (
            f"{modelled_columns(config, sms):.0f} columns of tiles of {config.tile.m} rows, one after another on an SM"
        )
    from .model import features, modelled_us

    return f"{modelled_us(features([config]), sms)[0]:.1f} us"
