"""The names that translated code uses."""

from __future__ import annotations

import functools
from typing import Any


@functools.cache
def namespace() -> dict[str, Any]:
    """Every function of values, conversions, memory, warps, barriers, copies and matrices, and what a block may return."""
    import numpy as np

    from . import (
        accumulators,
        convert_values,
        float_values,
        gang,
        ops_barrier,
        ops_copy,
        ops_launch,
        ops_matrix,
        ops_memory,
        ops_order,
        ops_store_async,
        ops_tensor_map,
        ops_warp,
        values,
    )

    names: dict[str, Any] = {"np": np, "ndarray": np.ndarray}
    for module in (
        values, float_values, convert_values, accumulators, ops_memory, ops_order, ops_warp, ops_barrier, ops_copy, ops_launch, ops_matrix,
        ops_store_async, ops_tensor_map,
    ):  # fmt: skip
        names.update(
            (name, value) for name, value in vars(module).items() if not name.startswith("_") and callable(value)
        )
    from . import ops_tcgen05, ops_tmem

    for module in (ops_tmem, ops_tcgen05):
        names.update((name, value) for name, value in vars(module).items() if name.startswith(("tmem_", "tcgen05_")))
    names["split_warps"] = ops_tmem.split_warps
    for name in ("EXIT", "PARK", "SPLIT", "YIELD", "guard", "guard_not", "diverge", "diverge_table"):
        names[name] = getattr(gang, name)
    return names
