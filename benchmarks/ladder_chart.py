"""The README's part about the Hopper ladder, made from its record: a chart and a table.

python benchmarks/ladder_chart.py            # print the Markdown
python benchmarks/ladder_chart.py --write    # draw benchmarks/results/ladder_hopper.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from stridewright.codegen.ladder_chart import PUBLISHED, ladder_drawing, markdown, result_of

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "benchmarks" / "results" / "ladder_hopper.json"
CHART = ROOT / "benchmarks" / "results" / "ladder_hopper.svg"


def record(path: Path = RECORD) -> dict[str, Any] | None:
    """What was recorded, or None where nothing was."""
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found if found.get("speed") else None


def chart(found: dict[str, Any]) -> str:
    """The chart as an SVG document."""
    results = [result_of(one) for one in found["speed"]]
    return ladder_drawing(results, f"one {found['device']['name']}").svg()


def lines(path: Path = RECORD) -> list[str]:
    """The Markdown, line by line; [] where there is no record."""
    found = record(path)
    if found is None:
        return []
    device, results = found["device"], [result_of(one) for one in found["speed"]]
    right = sum(row.right for result in results for row in result.rows)
    rows = sum(len(result.rows) for result in results)
    made = [
        f"![The ladder: every rung's speed beside cuBLASLt]({CHART.relative_to(ROOT).as_posix()})",
        "",
        f"TFLOP/s, and in brackets cuBLASLt's time over the rung's (its first choice, CUDA-graph replays in turn, inputs larger than L2), on one "
        f"{device['name']} ({device['date'][:10]}); {right} of {rows} results right. The last column is {PUBLISHED}.",
        "",
        "<details><summary>Each rung</summary>",
        "",
        *markdown(results),
        "",
        "</details>",
    ]
    return made + _counters(found)


def _counters(found: dict[str, Any]) -> list[str]:
    """A sentence on what the hardware's counters say, where they were recorded."""
    made = []
    for one in found.get("counters", []):
        rows = {row["number"]: row for row in one["rows"]}
        shown = [
            number
            for number in ("2", "4", "7", "9b", "11", "12", "cuBLASLt")
            if "tensor_active_percent" in rows.get(number, {})
        ]
        if shown:
            busy = ", ".join(f"{number} {rows[number]['tensor_active_percent']:.0f} %" for number in shown)
            made += ["", f"Tensor cores busy at {one['size']} cubed (Nsight Compute): {busy}."]
    return made


def main() -> None:
    """Print the Markdown, or draw the chart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="draw the chart")
    found = record()
    if parser.parse_args().write and found is not None:
        CHART.write_text(chart(found) + "\n", encoding="utf-8")
    print("\n".join(lines()))


if __name__ == "__main__":
    main()
