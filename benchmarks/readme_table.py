"""README's numbers, made from the recorded results.

    python benchmarks/readme_table.py            # print them
    python benchmarks/readme_table.py --write    # put them into README.md

A test compares README.md with what this prints, so no number in it is written by hand.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
BEGIN = "<!-- numbers: made by benchmarks/readme_table.py -->"
END = "<!-- end of numbers -->"


def numbers() -> str:
    """The block between the markers, as Markdown."""
    speed = json.loads((RESULTS / "gemm_hopper_speed.json").read_text(encoding="utf-8"))
    check = json.loads((RESULTS / "gemm_hopper_check.json").read_text(encoding="utf-8"))
    device = speed["device"]
    lines = [
        f"Measured on one {device['name']} (driver {device['driver_version']}, NVRTC {device['nvrtc']}, {device['date'][:10]}), "
        "side by side with cuBLAS as `torch.mm` calls it: one CUDA-graph replay of each in turn, inputs larger than L2. The "
        "ratio is cuBLAS's time over ours (median of the pairs, with its range), for the configuration chosen without tuning.",
        "",
        "| M, N, K (bf16) | TFLOP/s | ratio to cuBLAS | configuration |",
        "|---|---|---|---|",
    ]
    lines += [_row(row) for row in _first_of_each_shape(speed["rows"])]
    passed = sum(row["passed"] for row in check["rows"])
    configurations = len({row["config"] for row in check["rows"]})
    worst = max(row["relative_error"] for row in check["rows"])
    exact = [row["bit_exact"] for row in check["rows"] if row["bit_exact"] is not None]
    lines += [
        "",
        f"Right on the same GPU: {passed} of {len(check['rows'])} runs over {configurations} configurations, largest relative "
        f"error {worst:.2g} (bf16 rounding alone allows up to {2**-8:.2g}); {sum(exact)} of {len(exact)} runs on small "
        "integers bit for bit. Recorded in `benchmarks/results/`.",
    ]
    return "\n".join(lines)


def _first_of_each_shape(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # The benchmark times the library's own choice first, then other configurations of the same shape.
    found: dict[tuple[int, ...], dict[str, Any]] = {}
    for row in rows:
        found.setdefault(tuple(row["shape"]), row)
    return list(found.values())


def _row(row: dict[str, Any]) -> str:
    shape = " x ".join(str(size) for size in row["shape"])
    low, high = row["ratio_range"]
    return f"| {shape} | {row['ours_tflops']:.0f} | {row['ratio_to_cublas']:.3f} ({low:.3f} to {high:.3f}) | `{row['config']}` |"


def with_numbers(text: str) -> str:
    """README's text with the block between its markers made anew. ValueError where the markers are not both there
    once.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"README.md must have {BEGIN} and {END} once each")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{numbers()}\n{END}{rest.split(END)[1]}"


def main() -> None:
    """Print the numbers, or write them into README.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put them into README.md")
    if parser.parse_args().write:
        readme = ROOT / "README.md"
        readme.write_text(with_numbers(readme.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(numbers())


if __name__ == "__main__":
    main()
