"""QuACK's GEMMs for Hopper and Blackwell, instantiated through its own compile function, with no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cutlass
from quack.gemm import _compile_gemm
from quack.gemm_default_epi import GemmDefaultEpiMixin
from quack.tile_scheduler import TileSchedulerOptions
from quack.varlen_utils import VarlenArguments

from .capture import DeviceTensor, HostFunction, Launch, compiling_for

TYPES: dict[str, Any] = {
    "bf16": cutlass.BFloat16,
    "f16": cutlass.Float16,
    "f32": cutlass.Float32,
    "e4m3": cutlass.Float8E4M3FN,
    "e2m1": cutlass.Float4E2M1FN,
    "e2m3": cutlass.Float6E2M3FN,
    "e3m2": cutlass.Float6E3M2FN,
}

SCALES: dict[str, Any] = {"e8m0": cutlass.Float8E8M0FNU, "e4m3": cutlass.Float8E4M3FN}


def _operand(name: str, dtype: str) -> dict[str, Any]:
    """Arguments of QuACK's compile function for an operand's type."""
    found = TYPES[dtype]
    if found.width == 6:
        return {f"{name}_dtype": cutlass.Uint8, f"{name}_mma_dtype": found}
    return {f"{name}_dtype": found}


class QuackGemm:
    """One configuration of `GemmDefaultSm90` or, for sm_100a, `GemmDefaultSm100`; majors are "k" or "m"/"n".

    `scale` is the type of block scales, one for `vector` elements of k. `b_dtype`: B's type where it is another than A's; 6-bit values
    reach the host function as bytes. `more` overrides QuACK's own compile arguments.
    """

    def __init__(
        self,
        folder: Path,
        tile: tuple[int, int] = (128, 128),
        cluster: tuple[int, int] = (1, 1),
        ping_pong: bool = False,
        persistent: bool = True,
        dtype: str = "bf16",
        a_major: str = "k",
        b_major: str = "k",
        d_major: str = "n",
        arch: str = "sm_90a",
        dynamic: bool = False,
        scale: str | None = None,
        vector: int | None = None,
        b_dtype: str | None = None,
        **more: Any,
    ) -> None:
        settings: dict[str, Any] = {
            **_operand("a", dtype),
            **_operand("b", b_dtype or dtype),
            "d_dtype": cutlass.BFloat16,
            "c_dtype": None,
            "a_major": a_major,
            "b_major": b_major,
            "d_major": d_major,
            "c_major": None,
            "tile_shape_mn": tile,
            "cluster_shape_mnk": (*cluster, 1),
            "pingpong": ping_pong,
            "persistent": persistent,
            "is_dynamic_persistent": dynamic,
            "rowvec_dtype": None,
            "colvec_dtype": None,
            "colvec_ndim": 0,
            "alpha_mode": 0,
            "beta_mode": 0,
            "add_to_output": False,
            "concat_layout": None,
            "varlen_m": False,
            "varlen_k": False,
            "gather_A": False,
            "use_tma_gather": False,
            "has_batch_idx_permute": False,
            "device_capacity": (9, 0) if arch == "sm_90a" else (10, 0),
            "rounding_mode": 0,
            "sr_seed_mode": 0,
            "num_warps": None,
            "sf_dtype": SCALES.get(scale or ""),
            "sf_vec_size": vector,
        }
        compile_gemm = _compile_gemm.__wrapped__  # without the cache of object files, which keeps no PTX
        with compiling_for(arch):
            self._host = HostFunction(compile_gemm(**settings | more), folder)

    def launch(
        self,
        a: DeviceTensor,
        b: DeviceTensor,
        d: DeviceTensor,
        clusters: int,
        c: DeviceTensor | None = None,
        variable: VarlenArguments | None = None,
        scales: tuple[DeviceTensor | None, DeviceTensor | None] = (None, None),
        **epilogue: Any,
    ) -> Launch:
        """The launch for operands (1, M, K), (1, N, K), (1, M, N) with at most `clusters` persistent clusters.

        `scales` of A and B are (1, rows / 128, scales of a row / 4, 32, 4, 4).
        """
        fused = GemmDefaultEpiMixin.EpilogueArguments(add_to_output=None, rounding_mode=None, **epilogue)
        scheduler = TileSchedulerOptions(max_active_clusters=clusters, raster_order=None, max_swizzle_size=8)
        return self._host.launch(a, b, d, c, fused, scheduler, variable, *scales)
