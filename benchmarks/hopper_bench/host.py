"""The host's side: time from nothing to the first right result, and the time that a call takes of the host."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stridewright.codegen.measure import median_interval

PROGRAM = Path(__file__).resolve().parents[1] / "hopper_shapes.py"
CALLS = 100
"""Calls in a row before the queue is emptied: few enough for it never to be full."""


def cold(arguments: Namespace) -> int:
    """``cold_start.first_result`` in new processes, alternately with an empty cache and with the one that it left."""
    from .results import device_record, finite

    rows: dict[str, list[dict[str, Any]]] = {"empty cache": [], "from the cache": []}
    for _ in range(arguments.repeats):
        folder = tempfile.mkdtemp(prefix="stridewright-cold-")
        try:
            for name in rows:
                environment = {**os.environ, "STRIDEWRIGHT_CACHE_DIR": folder}
                environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as an installed package has its bytecode
                command = [sys.executable, str(PROGRAM), "first_result", "--shape", arguments.shape]
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
                if done.returncode:
                    print(f"{name}: the process failed:\n{done.stderr[-2000:]}", file=sys.stderr)
                    return 1
                rows[name].append(json.loads(done.stdout.splitlines()[-1]))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    report: dict[str, Any] = {"device": device_record(), "shape": arguments.shape, "rows": rows, "median": {}}
    for name, found in rows.items():
        medians = {
            what: statistics.median(one[what] for one in found)
            for what in ("import_seconds", "call_seconds", "seconds")
        }
        report["median"][name] = medians
        print(
            f"{name}: {medians['seconds']:.3f} s to the first result ({medians['import_seconds']:.3f} import, "
            f"{medians['call_seconds']:.3f} call), median of {len(found)}, all right: {all(one['right'] for one in found)}"
        )
    write(arguments.json, finite(report))
    return sum(not one["right"] for found in rows.values() for one in found)


def host_times(
    ways: Mapping[str, Callable[[], Any]],
    wait: Callable[[], Any],
    turns: int = 40,
    calls: int = CALLS,
    now: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Microseconds of host time a call, for each way a value a turn: in a turn each is called ``calls`` times in a row, the
    queue empty before.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name, way in ways.items():
            wait()
            start = now()
            for _ in range(calls):
                way()
            if turn:  # the first one warms up
                times[name].append((now() - start) * 1e6 / calls)
    wait()
    return times


def ways_to_call(size: int) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """Every way to multiply that is there, and why others are not."""
    import cupy

    from stridewright import Gemm, gemm
    from stridewright.codegen.gpu_values import random_buffers

    one = random_buffers(size, size, size)
    made = Gemm(size, size, size)
    bound = made.bind(one.a, one.b, one.d)
    dependent = made.bind(one.a, one.b, one.d, dependent=True)
    stream = cupy.cuda.get_current_stream()
    ways: dict[str, Callable[[], Any]] = {
        "bound launch": bound.launch,
        "bound launch into a given stream": lambda: bound.launch(stream),
        "bound launch, dependent": dependent.launch,
        "Gemm call, out given": lambda: made(one.a, one.b, out=one.d),
        "gemm(), out given": lambda: gemm(one.a, one.b, out=one.d),
        "gemm()": lambda: gemm(one.a, one.b),
    }
    ways |= bare_launches(bound.launch, int(stream.ptr))
    fused = Gemm(size, size, size, activation="gelu")
    bias = cupy.zeros(size, dtype=cupy.float32)
    bound_fused = fused.bind(one.a, one.b, one.d, bias=bias)
    ways["bound launch with bias and gelu"] = bound_fused.launch
    ways["Gemm call with bias and gelu, out given"] = lambda: fused(one.a, one.b, bias=bias, out=one.d)
    ways["gemm() with bias and gelu, out given"] = lambda: gemm(one.a, one.b, out=one.d, bias=bias, activation="gelu")
    batch = [cupy.stack([array] * 4) for array in (one.a, one.b, one.d)]
    batched = Gemm(size, size, size, batch=4)
    ways["Gemm call of a batch of 4, out given"] = lambda: batched(batch[0], batch[1], out=batch[2])
    ways["gemm() of a batch of 4, out given"] = lambda: gemm(batch[0], batch[1], out=batch[2])
    missing: dict[str, str] = {}
    try:
        import torch

        a, b, d = (torch.from_dlpack(array) for array in (one.a, one.b, one.d))
        ways["torch.mm, out given"] = lambda: torch.mm(a, b.t(), out=d)
        ways["torch.mm"] = lambda: torch.mm(a, b.t())
        ways["gemm() of torch tensors, out given"] = lambda: gemm(a, b, out=d)
        ways["torch.mm, out given, transposed before"] = _prepared_mm(torch, a, b, d)
        ways["gemm() of torch tensors with bias and gelu, out given"] = _fused_torch(torch, a, b, d)
        x, y, z = (torch.from_dlpack(array) for array in batch)
        ways["torch.bmm of 4, out given"] = lambda: torch.bmm(x, y.transpose(1, 2), out=z)
    except ImportError as error:
        missing["torch.mm"] = str(error)
    half = [array.astype(cupy.float16) for array in (one.a, one.b)]
    ways["cupy.matmul (f16)"] = lambda: cupy.matmul(half[0], half[1].T)
    for name, way in list(ways.items()):
        try:
            way()
            cupy.cuda.Device().synchronize()
        except Exception as error:  # a way that this installation lacks is left out
            missing[name] = f"{type(error).__name__}: {error}"
            del ways[name]
    return ways, missing


def bare_launches(launch: Any, stream: int) -> dict[str, Callable[[], Any]]:
    """What of a launch is the driver's: its calls with everything laid out before, and nothing around them."""
    from cupy_backends.cuda.api import driver

    from stridewright.codegen.launch_packed import launcher

    call = launch.calls[stream]
    extended = launcher()
    grid, block, shared_bytes, _ = launch._sizes
    pointers = ctypes.addressof(call[2]._obj)
    plain = (launch._function.ptr, *grid, *block, shared_bytes, stream)

    return {
        "driver alone: cuLaunchKernelEx by ctypes": lambda: extended(*call),
        "driver alone: cuLaunchKernel by CuPy": lambda: driver.launchKernel(*plain, pointers, 0),
    }


def _prepared_mm(torch: Any, a: Any, b: Any, d: Any) -> Callable[[], Any]:
    turned = b.t()
    return lambda: torch.mm(a, turned, out=d)


def _fused_torch(torch: Any, a: Any, b: Any, d: Any) -> Callable[[], Any]:
    from stridewright import gemm

    bias = torch.zeros(d.shape[1], device=d.device)
    return lambda: gemm(a, b, out=d, bias=bias, activation="gelu")


def host(arguments: Namespace) -> int:
    """The host's time of a call of each way, in turns."""
    import cupy

    from .results import device_record, finite

    ways, missing = ways_to_call(arguments.size)
    times = host_times(ways, cupy.cuda.Device().synchronize, arguments.turns)
    rows = []
    for name, values in times.items():
        found = median_interval(values)
        rows.append({"way": name, "us": found.median, "low": found.low, "high": found.high, "turns": len(values)})
        print(f"{found.median:7.2f} us  [{found.low:.2f} {found.high:.2f}]  {name}")
    for name, why in missing.items():
        print(f"left out: {name}: {why}")
    report = {"device": device_record(), "size": arguments.size, "calls": CALLS, "rows": rows, "missing": missing}
    write(arguments.json, finite(report))
    return 0


def write(path: Path, report: dict[str, Any]) -> None:
    """A report as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
