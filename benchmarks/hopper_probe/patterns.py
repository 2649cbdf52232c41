"""Shared-memory access patterns, their wavefronts by the model, and by ncu's counters."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
from typing import Any

import numpy as np

from stridewright.layout import Layout, Swizzle, compose
from stridewright.layout.banks import Access, report_of_offsets
from stridewright.layout.hardware import stmatrix_layout, wgmma_d_layout

from . import kernels

COUNTERS = {
    ("ld", "wavefronts"): "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    ("st", "wavefronts"): "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    ("ld", "conflicts"): "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    ("st", "conflicts"): "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
}
NCU_SECONDS = 75


def _epilogue(tile: Any, element_bytes: int, pair: int) -> list[int]:
    """Byte offsets at which a warp stores register pair ``pair`` of a wgmma accumulator into a (64, 64) tile."""
    fragment = wgmma_d_layout(64)
    places = [int(fragment(lane, 2 * pair)) for lane in range(32)]
    return [int(tile(place % 64, place // 64)) * element_bytes for place in places]


def _stmatrix_epilogue(tile: Any) -> list[int]:
    """Row addresses of stmatrix.x4 for 16 rows x 16 columns of a wgmma accumulator in a (64, 64) tile of bf16."""
    # Matrix i of lane 8 * i + r: rows 8 * (i % 2) + r, columns 8 * (i // 2).
    assert int(stmatrix_layout(4)(0, 0)) == 0
    return [int(tile(8 * (lane // 8 % 2) + lane % 8, 8 * (lane // 16))) * 2 for lane in range(32)]


def patterns() -> list[tuple[str, str, int, list[int]]]:
    """(name, instruction, bytes or matrices, byte offset of every lane; -1 for a lane that is off)."""
    lanes = range(32)
    plain, swizzled = Layout((64, 64), (64, 1)), compose(Swizzle(3, 3, 3), Layout((64, 64), (64, 1)))
    padded = Layout((64, 64), (72, 1))
    rows = lambda tile: [int(tile(lane % 32, 0)) * 2 for lane in lanes]  # noqa: E731
    found: list[tuple[str, str, int, list[int]]] = [
        ("contiguous", "ld", 4, [4 * lane for lane in lanes]),
        ("one word", "ld", 4, [0] * 32),
        ("column of floats, pitch 32 words", "ld", 4, [128 * lane for lane in lanes]),
        ("column of floats, pitch 33 words", "ld", 4, [132 * lane for lane in lanes]),
        ("stride of 2 words", "ld", 4, [8 * lane for lane in lanes]),
        ("swizzled column of floats", "ld", 4, [4 * (32 * lane ^ lane) for lane in lanes]),
        ("half the lanes", "ld", 4, [256 * lane if lane % 2 else -1 for lane in lanes]),
        ("contiguous", "ld", 8, [8 * lane for lane in lanes]),
        ("one address", "ld", 8, [0] * 32),
        ("pairs share", "ld", 8, [8 * (lane // 2) for lane in lanes]),
        ("stride of 4 words", "ld", 8, [16 * lane for lane in lanes]),
        ("contiguous", "ld", 16, [16 * lane for lane in lanes]),
        ("one address", "ld", 16, [0] * 32),
        ("lanes two apart share", "ld", 16, [16 * (lane // 4 * 2 + lane % 2) for lane in lanes]),
        ("lanes four apart share", "ld", 16, [16 * (lane // 8 * 4 + lane % 4) for lane in lanes]),
        ("rows of 128 bytes", "ld", 16, [128 * lane for lane in lanes]),
        ("contiguous", "st", 4, [4 * lane for lane in lanes]),
        ("column of floats, pitch 32 words", "st", 4, [128 * lane for lane in lanes]),
        ("contiguous", "st", 8, [8 * lane for lane in lanes]),
        ("contiguous", "st", 16, [16 * lane for lane in lanes]),
        ("one address", "st", 16, [0] * 32),
        ("bf16x2 epilogue, pitch 128 bytes", "st", 4, _epilogue(plain, 2, 3)),
        ("bf16x2 epilogue, 128B swizzle", "st", 4, _epilogue(swizzled, 2, 3)),
        ("bf16x2 epilogue, padded pitch", "st", 4, _epilogue(padded, 2, 3)),
        ("float pairs epilogue, pitch 256 bytes", "st", 8, _epilogue(plain, 4, 3)),
        ("rows of 128 bytes", "ldmatrix", 4, rows(plain)),
        ("rows of 128 bytes, 128B swizzle", "ldmatrix", 4, rows(swizzled)),
        ("rows of 144 bytes", "ldmatrix", 4, rows(padded)),
        ("rows of 64 bytes", "ldmatrix", 4, [64 * lane for lane in lanes]),
        ("epilogue, rows of 128 bytes", "stmatrix", 4, _stmatrix_epilogue(plain)),
        ("epilogue, 128B swizzle", "stmatrix", 4, _stmatrix_epilogue(swizzled)),
    ]
    return found


def predicted(op: str, size: int, offsets: list[int]) -> tuple[int, int]:
    """(wavefronts, conflicts) of one instruction by the model."""
    access = Access(16 if op in ("ldmatrix", "stmatrix") else size, op=op)
    report = report_of_offsets([None if offset < 0 else offset for offset in offsets], access)
    return report.wavefronts, report.conflicts


def run_patterns(device: Any) -> None:
    """Launch every pattern once, in order: this is what runs under ncu."""
    kinds = sorted({(op, size) for _, op, size, _ in patterns()})
    module = device.load(kernels.PRELUDE + "".join(kernels.bank_kernel(*kind) for kind in kinds))
    out = device.buffer(np.zeros(32, np.uint32))
    for _, op, size, offsets in patterns():
        given = device.buffer(np.array(offsets, np.int32))
        module.launch(f"bank_{op}_{size}", 32, [given, out], 64 * 1024)


def probe_banks(script: str) -> list[dict[str, Any]]:
    """Run ``script --patterns`` under ncu and compare its counters with the model, one record a pattern."""
    ncu = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    command = [ncu, "--clock-control", "none", "--csv", "--page", "raw", "--metrics", ",".join(COUNTERS.values())]
    run = subprocess.run(
        [*command, sys.executable, script, "--patterns"],
        capture_output=True,
        text=True,
        check=False,
        timeout=NCU_SECONDS,
    )
    measured = parse_ncu(run.stdout)
    if len(measured) != len(patterns()):
        tail = (run.stdout + run.stderr)[-600:]
        raise RuntimeError(f"ncu gave {len(measured)} kernels of {len(patterns())}, status {run.returncode}: {tail}")
    records = []
    for (name, op, size, offsets), row in zip(patterns(), measured, strict=True):
        side = "ld" if op in ("ld", "ldmatrix") else "st"
        seen = tuple(row[COUNTERS[side, what]] / kernels.UNROLL for what in ("wavefronts", "conflicts"))
        ours = predicted(op, size, offsets)
        what = f"{op} {size}: {name}"
        records.append({"what": what, "measured": seen, "model": ours, "elements": 1, "wrong": int(seen != ours)})
    return records


def parse_ncu(text: str) -> list[dict[str, float]]:
    """The counters of every kernel from ``ncu --csv --page raw``: a header, a line of units, one line a kernel."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    rows = list(csv.reader(io.StringIO("\n".join(lines[start:]))))
    header, found = rows[0], []
    for row in rows[1:]:
        if len(row) != len(header) or not row[0].strip().isdigit():
            continue
        values = dict(zip(header, row, strict=True))
        found.append({name: float(values[name].replace(",", "") or 0) for name in COUNTERS.values() if name in values})
    return found
