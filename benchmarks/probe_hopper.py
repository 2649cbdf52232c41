"""Ask a Hopper GPU whether the package's hardware layouts are true, and record its answers.

    python benchmarks/probe_hopper.py FOLDER

writes FOLDER/probe_hopper.json and prints a summary: fragment maps by tagging, matrix descriptors through wgmma, TMA
boxes byte by byte, the driver's verdict on random tensor maps, and wavefronts under ncu. Every section runs in a
process of its own, so that a fault in one loses no other. Needs a GPU of compute capability 9.0, its driver, NVRTC or
nvcc, numpy; ncu for the last section. Nothing on the GPU is set or reset. About a minute.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
try:
    import stridewright
except ImportError:
    sys.path.insert(0, str(HERE.parent / "src"))
    import stridewright  # noqa: F401

from hopper_probe import copies, fragments, operands, patterns  # noqa: E402
from hopper_probe.device import Device, facts  # noqa: E402

SECTIONS: dict[str, Callable[[Any], Iterator[dict[str, Any]]]] = {
    "wgmma_fragments": fragments.probe_wgmma,
    "mma_sync_fragments": fragments.probe_mma,
    "ldmatrix_stmatrix": fragments.probe_matrix_moves,
    "matrix_descriptors": operands.probe_descriptors,
    "tensor_map_verdicts": copies.probe_verdicts,
    "tma_loads": copies.probe_loads,
    "tma_stores": copies.probe_stores,
}
SECTION_SECONDS = 60


def in_a_process(name: str) -> dict[str, Any]:
    """Run one section in a child and return its record."""
    start = time.monotonic()
    try:
        child = subprocess.run(
            [sys.executable, __file__, "--section", name],
            capture_output=True,
            text=True,
            check=False,
            timeout=SECTION_SECONDS,
        )
        lines = [line for line in child.stdout.splitlines() if line.startswith("{")]
        record: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": (child.stdout + child.stderr)[-1500:]}
    except subprocess.TimeoutExpired:
        record = {"error": f"no answer within {SECTION_SECONDS} s"}
    record["seconds"] = round(time.monotonic() - start, 2)
    return record


def summarised(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Totals first, then the records."""
    return {
        "cases": len(records),
        "elements": sum(int(record.get("elements", 0)) for record in records),
        "wrong_cases": sum(bool(record.get("wrong")) for record in records),
        "errors": sum("error" in record for record in records),
        "records": records,
    }


def section(name: str) -> dict[str, Any]:
    """One section here and now, its failure as text."""
    records: list[dict[str, Any]] = []
    try:
        # Kept one by one: a fault of the device ends the section, not what it has found.
        records.extend(SECTIONS[name](Device()))
    except Exception:
        records.append({"what": "the section ended here", "error": traceback.format_exc()[-1500:]})
    return summarised(records)


def banks() -> dict[str, Any]:
    """The section under ncu."""
    start = time.monotonic()
    try:
        record = summarised(patterns.probe_banks(__file__))
    except Exception as error:
        record = {"error": f"{type(error).__name__}: {error}"[:1500]}
    record["seconds"] = round(time.monotonic() - start, 2)
    return record


def main(arguments: list[str]) -> int:
    """Entry point; see the module's text."""
    if arguments[:1] == ["--section"]:
        print(json.dumps(section(arguments[1])))
        return 0
    if arguments[:1] == ["--patterns"]:
        patterns.run_patterns(Device())
        return 0
    folder = Path(arguments[0] if arguments else ".")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "probe_hopper.json"
    outcome: dict[str, Any] = {"device": facts(), "sections": {}}
    for name in (*SECTIONS, "shared_memory_wavefronts"):
        outcome["sections"][name] = in_a_process(name) if name in SECTIONS else banks()
        path.write_text(json.dumps(outcome, indent=1) + "\n")
    bad = 0
    for name, record in outcome["sections"].items():
        if "cases" in record:
            line = f"{record['cases']} cases, {record['elements']} elements, {record['wrong_cases']} wrong, {record['errors']} errors"
            bad += record["wrong_cases"] + record["errors"]
            for item in record["records"]:
                if item.get("wrong") or "error" in item:
                    print(f"  {name}: {json.dumps(item)[:400]}")
        else:
            line, bad = "FAILED: " + record["error"][-600:], bad + 1
        print(f"{name}: {line} ({record['seconds']} s)")
    print(f"{path}: {'all as the package says' if not bad else f'{bad} differences or failures'}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
