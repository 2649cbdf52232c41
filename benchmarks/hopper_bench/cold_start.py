"""The first result of a process that has done nothing yet. Imports nothing of the package: that import is measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def first_result(shape: tuple[int, int, int], now: Callable[[], float] = time.perf_counter) -> dict[str, Any]:
    """In a process that has done nothing yet: seconds until the first result is there, once CuPy is imported, the context
    made and the operands lie on the GPU; and whether it is right.
    """
    import cupy
    import ml_dtypes
    import numpy as np

    m, n, k = shape
    random = np.random.default_rng(0)
    a, b = (
        cupy.asarray(random.standard_normal((rows, k), dtype=np.float32).astype(ml_dtypes.bfloat16)) for rows in (m, n)
    )
    cupy.cuda.Device().synchronize()
    start = now()
    import stridewright

    imported = now()
    d = stridewright.gemm(a, b)
    cupy.cuda.Device().synchronize()
    there = now()
    from stridewright.codegen.gpu_values import Buffers, check_on_gpu

    check = check_on_gpu(Buffers(a, b, d))
    return {
        "import_seconds": imported - start,
        "call_seconds": there - imported,
        "seconds": there - start,
        "right": check.passed,
        "relative_error": check.relative_error,
    }
