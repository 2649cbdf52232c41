"""Hardware counters of chosen launches, through Nsight Compute: tensor-pipe use, L2 hit rate, DRAM traffic."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stridewright.codegen.tuned import read_config
from stridewright.kernels.config import GemmConfig, Problem

from .host import PROGRAM, write
from .summary import fastest_of_ours

# Cycles in which the tensor cores work, under the names that Nsight Compute has had for it; the first there is is taken.
TENSOR = (
    "sm__pipe_tensor_op_gmma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
)
ALWAYS = {
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
    "l2_to_sm_bytes": "lts__t_bytes_srcunit_tex.sum",
    "sectors_read_from_l2": "lts__t_sectors_srcunit_tex_op_read.sum",
    "nanoseconds": "gpu__time_duration.sum",
    "sm_cycles": "sm__cycles_elapsed.max",
    "instructions_of_a_scheduler": "smsp__inst_executed.avg",
    "warps_in_dispatch_stall": "smsp__average_warps_issue_stalled_dispatch_stall_per_issue_active.ratio",
}
_FUSED = ("bias", "activation")
FILLING = ("fill_random",)
"""Kernels that only draw the operands."""

_UNITS = {"byte": 1.0, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_LONG_UNITS = {"nsecond": "ns", "usecond": "us", "msecond": "ms", "second": "s"}


def parse(text: str) -> list[dict[str, Any]]:
    """The kernels of ``ncu --csv --page raw``: name, block and grid, and every metric as a number, bytes and nanoseconds.

    Lines before the table (what the program printed, and Nsight Compute's own ``==PROF==``) are passed over. ValueError
    where there is no table.
    """
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith('"ID"'):
            table = list(csv.reader(io.StringIO("\n".join(lines[number:]))))
            break
    else:
        raise ValueError("no table of Nsight Compute: " + (lines[-1] if lines else "it printed nothing"))
    header, units, rows = table[0], table[1], table[2:]
    found = []
    for row in rows:
        if len(row) != len(header):
            continue
        kernel: dict[str, Any] = {}
        for name, unit, value in zip(header, units, row, strict=True):
            number_found = _number(value, unit) if "__" in name else None
            if number_found is not None:
                kernel[name] = number_found
        kernel["kernel"] = row[header.index("Kernel Name")] if "Kernel Name" in header else ""
        found.append(kernel)
    return found


def _number(text: str, unit: str) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    unit = unit.strip().lower()
    return value * _UNITS.get(_LONG_UNITS.get(unit, unit), 1.0)


def figures(kernel: dict[str, Any]) -> dict[str, Any]:
    """What a record keeps of a parsed kernel."""
    made: dict[str, Any] = {"kernel": kernel["kernel"]}
    for name in TENSOR:
        if name in kernel:
            made["tensor_active_percent"], made["tensor_metric"] = kernel[name], name
            break
    made |= {short: kernel[name] for short, name in ALWAYS.items() if name in kernel}
    if made.get("nanoseconds") and made.get("sm_cycles"):
        made["clock_mhz"] = 1e3 * made["sm_cycles"] / made["nanoseconds"]
    return made


def available(names: Iterable[str], query: str) -> list[str]:
    """Those of the metrics that ``ncu --query-metrics`` names (without their suffixes); all of them where it names none."""
    there = {line.split()[0] for line in query.splitlines() if "__" in line.split(" ")[0]}
    wanted = list(names)
    return [name for name in wanted if name.split(".")[0] in there] if there else wanted


def parse_settings(text: str) -> dict[str, Any]:
    """Parameters like ``tile_n=208,stages=4``.

    >>> parse_settings("tile_n=208,order=hilbert")
    {'tile_n': 208, 'order': 'hilbert'}
    """
    found: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{part}: must be NAME=VALUE")
        found[name] = int(value) if value.lstrip("-").isdigit() else value
    return found


def configuration(problem: Problem, settings: str) -> GemmConfig:
    """What the model chooses, with those parameters changed (``bias=n,activation=gelu`` are fused); or the configuration of a
    JSON record.
    """
    if settings.startswith("{"):
        return read_config(json.loads(settings), problem).require_valid()
    from stridewright.codegen.select import select
    from stridewright.kernels.fusion import Fusion

    changes = parse_settings(settings)
    fused = {name: changes.pop(name) for name in _FUSED if name in changes}
    return select(problem).replace(**changes, **({"fusion": Fusion(**fused)} if fused else {})).require_valid()


def launch_once(arguments: Namespace) -> int:
    """What Nsight Compute looks at: the configurations, and cuBLASLt's first choice, each launched ``--launches`` times."""
    import cupy

    from stridewright import Gemm
    from stridewright.codegen import cublaslt, measure
    from stridewright.codegen.gpu_values import random_buffers

    m, n, k = (int(size) for size in arguments.shape.split(","))
    buffers = [random_buffers(m, n, k, seed=seed) for seed in range(arguments.launches)]
    stream = measure.timing_stream()
    for settings in arguments.set:
        if settings.startswith("cublaslt"):
            place = int(settings.removeprefix("cublaslt") or 0)
            algorithm = cublaslt.heuristics(m, n, k)[place]
            launches = cublaslt.CublasLtGemm(m, n, k, algorithm).launches(buffers)
        else:
            made = Gemm(m, n, k, config=configuration(Problem(m=m, n=n, k=k), settings))
            if made.config.fusion.bias:
                bias = cupy.linspace(-1.0, 1.0, n, dtype=cupy.float32)
                bound = [made.bind(one.a, one.b, one.d, bias=bias) for one in buffers]
                launches = [one.launch for one in bound]
            else:
                launches = measure.gemm_launches(made, buffers)
        for launch in launches:
            launch(stream)
        stream.synchronize()
    return 0


def main_kernel(kernels: list[dict[str, Any]], launches: int) -> dict[str, Any]:
    """Of the kernels that were profiled, the longest of the last launch: a split product of cuBLASLt's has two. ValueError
    where none is left.
    """
    found = [one for one in kernels if one["kernel"] not in FILLING]
    if not found:
        raise ValueError("Nsight Compute profiled no product")
    last = found[-max(1, len(found) // launches) :]
    return max(last, key=lambda one: one.get("gpu__time_duration.sum", 0.0))


class Profiler:
    """Nsight Compute on this GPU. Raises FileNotFoundError where it is not installed."""

    def __init__(self, launches: int = 2) -> None:
        tool = shutil.which("ncu")
        if tool is None:
            raise FileNotFoundError("Nsight Compute (ncu) is not on the PATH")
        self._launches = launches
        query = subprocess.run([tool, "--query-metrics"], capture_output=True, text=True, check=False).stdout
        self.metrics = available([*TENSOR, *ALWAYS.values()], query)
        self._command = [tool, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
        self._command += ["--metrics", ",".join(self.metrics)]

    def figures(self, shape: str, settings: str) -> dict[str, Any]:
        """The figures of ``settings`` for ``shape``, as ``launch_once`` takes them; an ``error`` where there are none."""
        target = [sys.executable, str(PROGRAM), "launch_once", "--shape", shape, "--set", settings]
        target += ["--launches", str(self._launches)]
        done = subprocess.run([*self._command, *target], capture_output=True, text=True, check=False)
        try:
            return figures(main_kernel(parse(done.stdout), self._launches))
        except ValueError as error:
            return {"error": f"{error}; {done.stderr[-500:]}"}


def run(arguments: Namespace) -> int:
    """The figures of each configuration and shape."""
    from .results import device_record, finite

    profiler = Profiler(arguments.launches)
    rows = []
    for shape in arguments.shape.split(";"):
        for settings in arguments.set:
            rows.append({"shape": shape, "settings": settings, **profiler.figures(shape, settings)})
            print(json.dumps(rows[-1]), flush=True)
    write(arguments.json, finite({"device": device_record(), "metrics": profiler.metrics, "rows": rows}))
    return sum("error" in row for row in rows)


def below(rows: list[dict[str, Any]], first: float, best: float) -> list[dict[str, Any]]:
    """The shapes whose fastest configuration of ours stays below ``first`` of cuBLASLt's first choice or ``best`` of its
    best.
    """
    found = []
    for row in rows:
        ours = fastest_of_ours(row)
        compared = ours is not None and ours["to_first"]
        if ours is not None and compared and (ours["to_first"]["ratio"] < first or ours["to_best"]["ratio"] < best):
            found.append(row)
    return found


def limits(arguments: Namespace) -> int:
    """For each shape that stays below: by how much, how many configurations were tried, and the hardware counters of ours
    and of cuBLASLt's best beside each other.
    """
    from .results import device_record, finite

    measured = json.loads(arguments.of.read_text(encoding="utf-8"))["rows"]
    tried = {}
    if arguments.tuned is not None:
        report = json.loads(arguments.tuned.read_text(encoding="utf-8"))
        tried = {row["name"]: row.get("outcomes") for row in report["rows"]}
    profiler = Profiler(arguments.launches)
    rows = []
    for row in below(measured, arguments.first, arguments.best):
        ours = fastest_of_ours(row)
        assert ours is not None
        shape = f"{row['m']},{row['n']},{row['k']}"
        theirs = row["entries"][row["best"]]
        place = theirs["detail"].removeprefix("cublaslt").split("_")[0]
        rows.append(
            {
                "name": row["key"],
                "shape": shape,
                "to_first": ours["to_first"],
                "to_best": ours["to_best"],
                "tried": tried.get(row["key"]),
                "ours": {"config": ours["detail"], **profiler.figures(shape, json.dumps(ours["config"]))},
                "cublaslt": {"algorithm": theirs["detail"], **profiler.figures(shape, f"cublaslt{place}")},
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    write(arguments.json, finite({"device": device_record(), "metrics": profiler.metrics, "rows": rows}))
    return sum("error" in row[who] for row in rows for who in ("ours", "cublaslt"))


def read(path: Path) -> list[dict[str, Any]]:
    """The figures in a file of ``ncu --csv --page raw``, made by hand."""
    return [figures(kernel) for kernel in parse(path.read_text(encoding="utf-8"))]
