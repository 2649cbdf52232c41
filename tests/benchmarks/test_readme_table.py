"""README's numbers: each part from its own file of results, the means those of the rows, the chart beside them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from readme_table import CHART, RESULTS, chart, numbers

DEVICE = {
    "name": "NVIDIA H200",
    "driver_version": "580.1",
    "nvrtc": "13.0",
    "cublaslt": "13.0.2",
    "date": "2026-11-30T00:00:00+00:00",
}


def entry(labels: list[str], us: float, first: float, best: float, alone: float | None = None) -> dict[str, Any]:
    return {
        "labels": labels,
        "us": us,
        "tflops": 700.4,
        "detail": f"kernel_{us:g}",
        "config": None if labels == ["cublaslt"] else {},
        "dependent": us < 9,
        "to_first": {"ratio": first, "low": first - 0.01, "high": first + 0.01},
        "to_best": {"ratio": best, "low": best - 0.01, "high": best + 0.01},
        "sustained": None if alone is None else {"us": alone, "clock_mhz": 1500.4, "watts": None},
    }


def row(key: str, *entries: dict[str, Any]) -> dict[str, Any]:
    sizes = {"m": 4096, "n": 4096, "k": 1024}
    floor = {"bound": "tensor cores", "us": 100.0}
    return {"key": key, "run": 0, **sizes, "rounds": 15, "floor": floor, "first": 2, "entries": list(entries)}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    rows = [
        row(
            "square",
            entry(["untuned"], 10, 1.1, 1.0, 12),
            entry(["tuned"], 8, 1.375, 1.25, 9),
            entry(["cublaslt"], 11, 1, 0.9, 12),
        ),
        row("odd", entry(["untuned"], 10, 4.0, 2.0), entry(["tuned"], 10, 4.0, 2.0), entry(["cublaslt"], 40, 1, 0.5)),
    ]
    write(tmp_path, "hopper_shapes", {"runs": [{"device": DEVICE}], "rows": rows})
    return tmp_path


def write(folder: Path, name: str, report: dict[str, Any]) -> None:
    (folder / f"{name}.json").write_text(json.dumps(report), encoding="utf-8")


def test_shapes_have_their_means_and_rows(results: Path) -> None:
    text = numbers(results)
    assert f"| 2 shapes | {(1.375 * 4) ** 0.5:.3f} | {(1.25 * 2) ** 0.5:.3f} | {(1.1 * 4) ** 0.5:.3f} |" in text
    assert "| without `odd` | 1.375 | 1.250 | 1.100 |" in text
    assert f"| 1 compute-bound shapes, each alone, sustained | {12 / 9:.3f} | {12 / 9:.3f} | 1.000 |" in text
    assert (
        "| square | 4096, 4096, 1024 | 8.00 | 700 | 1.375 (1.365 to 1.385) | 1.250 (1.240 to 1.260) | 1.100 | `kernel_8`, dependent launch |"
        in text
    )
    # Alone for 9 us: 2 * 4096 * 4096 * 1024 operations.
    assert f"| square | 9.0 | {2 * 4096 * 4096 * 1024 / 9e6:.0f} | 1500 |  | 1.333 | 1.333 | `kernel_8` |" in text
    assert text.count("shapes alone</summary>") == 1
    assert f"reaches {0.8**0.5:.3f} of the tuned speed on these (geometric means)" in text
    assert "NVIDIA H200 (driver 580.1, NVRTC 13.0, cuBLASLt 13.0.2, 2026-11-30)" in text


def test_random_shapes_host_cold_and_pairs_join_where_they_are(results: Path) -> None:
    before = numbers(results)
    others = [{"untuned_ratio": 1.25, "seconds": 2.0}, {"untuned_ratio": None, "seconds": 2.0}]
    write(results, "tune_random_shapes", {"rows": others})
    ways = {"bound launch": 5.51, "gemm(), out given": 6.62, "torch.mm, out given": 20.13}
    write(results, "hopper_host", {"rows": [{"way": way, "us": us} for way, us in ways.items()]})
    medians = {
        "empty cache": {"seconds": 0.914, "import_seconds": 0.02},
        "from the cache": {"seconds": 0.0451, "import_seconds": 0.02},
    }
    write(results, "hopper_cold", {"shape": "4096,4096,4096", "median": medians})
    write(results, "hopper_pairs", {"pairs": 2000, "kernels": 240, "passed": 1999, "bit_equal": 1700})
    text = numbers(results)
    assert "0.800 of what tuning found in 2.0 s a shape on 1 other shapes" in text
    assert (
        "takes 5.5 us of the host's time, `gemm()` into a given output 6.6; `torch.mm`, in turns with them, 20.1."
        in text
    )
    assert "first right result of 4096 x 4096 x 4096: 0.91 s with an empty cache, 45 ms from it (the package's" in text
    assert (
        "Of 2000 random pairs of shape and configuration, over 240 kernels with every feature, 1999 were right" in text
    )
    assert "drawn at random" not in before


def test_shapes_that_stay_below_are_listed_with_what_limits_them(results: Path) -> None:
    figures = {"tensor_active_percent": 61.24, "l2_hit_percent": 45.0, "dram_read_bytes": 1.5e9, "nanoseconds": 90e3}
    row = {
        "name": "deep-k",
        "to_first": {"ratio": 0.912},
        "to_best": {"ratio": 0.91},
        "tried": {"measured": 48},
        "ours": figures,
        "cublaslt": {**figures, "tensor_active_percent": 66.0},
    }
    write(results, "hopper_limits", {"rows": [row]})
    assert (
        "- deep-k: 0.912 and 0.910; 48 configurations measured; tensor cores active 61.2 (66.0) %; L2 hits 45.0 (45.0) %; "
        "read from memory 1500.0 (1500.0) MB; 90.0 (90.0) us under the profiler."
    ) in numbers(results)


def test_chart_is_an_svg_with_every_ratio_in_its_tooltips(results: Path) -> None:
    drawn = chart(results)
    assert drawn is not None
    root = ElementTree.fromstring(drawn)
    tips = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any("square" in tip and "1.375 (1.365 to 1.385)" in tip and "kernel_8" in tip for tip in tips)
    assert any("odd" in tip and "2.000" in tip for tip in tips)


def test_without_the_shapes_the_older_table_stands(tmp_path: Path) -> None:
    older = {
        "device": DEVICE,
        "rows": [
            {
                "shape": [64, 64, 64],
                "ours_tflops": 1.0,
                "ratio_to_cublas": 1.05,
                "ratio_range": [1.0, 1.1],
                "config": "chosen",
            },
            {
                "shape": [64, 64, 64],
                "ours_tflops": 2.0,
                "ratio_to_cublas": 2.05,
                "ratio_range": [2.0, 2.1],
                "config": "other",
            },
        ],
    }
    write(tmp_path, "gemm_hopper_speed", older)
    text = numbers(tmp_path)
    assert "| 64 x 64 x 64 | 1 | 1.050 (1.000 to 1.100) | `chosen` |" in text
    assert "other" not in text
    assert chart(tmp_path) is None


def test_recorded_chart_is_made_from_the_recorded_results() -> None:
    drawn = chart(RESULTS)
    if drawn is None:
        pytest.skip("no shapes are recorded")
    assert (RESULTS / CHART).read_text(encoding="utf-8") == drawn, "run: python benchmarks/readme_table.py --write"


def test_what_goes_beyond_plain_products_is_told_beside_cublaslt(results: Path) -> None:
    assert "random mixtures" not in numbers(results)
    write(results, "breadth_hopper", {"run": 5000, "kernels": 300, "counts": {"right": 4999}})

    def line(first: float, best: float) -> dict[str, Any]:
        return {"e4m3 fast": {"first": {"ratio": first}, "best": {"ratio": best}}}

    speed = {
        "fp8": {"device": {"name": "NVIDIA H200"}, "4096": line(1.21, 1.0), "8192": line(1.0, 0.81)},
        "fused": {"device": {}, "8192": {"fused_over_plain": {"ratio": 1.021}}},
        "promotion": {
            "block scales beside cuBLASLt": {
                "4096": {"cuBLASLt through PyTorch": {"ratio": 1.21}},
                "8192": {"cuBLASLt through PyTorch": {"ratio": 1.0}},
                "dsv3-2112": {"cuBLASLt through PyTorch": "RuntimeError: refused"},
            }
        },
        "grouped": {"device": {}, "4 x 8192": {"ratio": 1.04}},
    }
    write(results, "breadth_speed_hopper", speed)
    text = numbers(results)
    assert "Of 5000 random mixtures" in text
    assert "over 300 kernels, 4999 were right" in text
    assert (
        "on 2 shapes (cubes and DeepSeek-V3's): 1.100 of cuBLASLt's first choice with its fast accumulation (least 1.000)"
        in text
    )
    assert "0.900 of the best of its list (least 0.810)" in text
    assert "on 2 of them: 1.100 of cuBLASLt's (least 1.000). Groups of rows beside a loop of cuBLASLt's: 1.04." in text
    assert "Bias and gelu cost 2.1 % at 8192 cubed over plain." in text
