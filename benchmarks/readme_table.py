"""README's numbers and chart, made from the recorded results.

    python benchmarks/readme_table.py            # print them
    python benchmarks/readme_table.py --write    # put them into README.md, and the chart beside the results

A test compares README.md with what this prints, so no number in it is written by hand. What was not measured yet has no
place in it: each part is made from its own file of results, if that is there.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import ladder_chart
from hopper_bench.summary import Summary, entry_of, mean, summary, sustained_of, untuned_of_tuned, without

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
CHART = "hopper_shapes.svg"
BEGIN = "<!-- numbers: made by benchmarks/readme_table.py -->"
END = "<!-- end of numbers -->"


def _read(results: Path, name: str) -> dict[str, Any] | None:
    path = results / f"{name}.json"
    found: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return found


def numbers(results: Path = RESULTS) -> str:
    """The block between the markers, as Markdown."""
    shapes = _read(results, "hopper_shapes")
    parts = [_speed(results) if shapes is None else _shapes(shapes, _read(results, "tune_random_shapes"))]
    parts += [part for part in (_limits(results), _host(results), _right(results), _breadth(results)) if part]
    ladder = ladder_chart.lines(results / ladder_chart.RECORD.name)
    if ladder:
        parts.append("\n".join(ladder))
    return "\n\n".join(parts)


# ---- the thirty shapes ------------------------------------------------------------------------------------------------


def _shapes(found: dict[str, Any], random: dict[str, Any] | None) -> str:
    rows = found["rows"]
    device = found["runs"][rows[-1]["run"]]["device"]
    tuned, untuned = summary(rows, "tuned"), summary(rows, "untuned")
    lines = [
        f"Measured on one {device['name']} (driver {device['driver_version']}, NVRTC {device['nvrtc']}, cuBLASLt "
        f"{device['cublaslt']}, {device['date'][:10]}): CUDA graphs over random normal buffers larger together than twice the L2 "
        "cache, in turns; every timed result checked. Each row is the fastest of what the table and the model choose, which may have changed "
        "places since. Ratios are cuBLASLt's time over ours, the median of "
        f"{rows[-1]['rounds']} turns with its 95 % interval: to its heuristic's first choice, and to the fastest of its list. "
        f"Made by `benchmarks/hopper_shapes.py`; chart: [`{CHART}`](benchmarks/results/{CHART}).",
        "",
        "| geometric mean | to the first choice | to the best | untuned, to the first choice |",
        "|---|---|---|---|",
        f"| {len(rows)} shapes | {mean(tuned.first.values()):.3f} | {mean(tuned.best.values()):.3f} | {mean(untuned.first.values()):.3f} |",
        f"| without `odd` | {mean(without(tuned.first).values()):.3f} | {mean(without(tuned.best).values()):.3f} "
        f"| {mean(without(untuned.first).values()):.3f} |",
    ]
    if tuned.sustained_first:
        alone = summary(rows, "untuned").sustained_first
        untuned_alone = f"{mean(alone.values()):.3f}" if len(alone) == len(tuned.sustained_first) else "not measured"
        lines.append(
            f"| {len(tuned.sustained_first)} compute-bound shapes, each alone, sustained | {mean(tuned.sustained_first.values()):.3f} "
            f"| {mean(tuned.sustained_best.values()):.3f} | {untuned_alone} |"
        )
    if found.get("note"):
        lines += ["", found["note"]]
    lines += ["", *_shares(rows, random), "", f"![Every shape beside cuBLASLt](benchmarks/results/{CHART})", ""]
    lines += [
        f"<details><summary>Each of the {len(rows)} shapes</summary>",
        "",
        "| shape | M, N, K | us | TFLOP/s | to the first choice | to the best | untuned | configuration |",
        "|---|---|---|---|---|---|---|---|",
        *(_shape_row(row) for row in rows),
        "",
        "</details>",
    ]
    if tuned.sustained_first:
        lines += ["", *_alone(rows, tuned)]
    return "\n".join(lines)


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def _alone(rows: list[dict[str, Any]], tuned: Summary) -> list[str]:
    """The shapes that ran alone, each with what the table of sustained load has for it."""
    lines = [
        f"<details><summary>Each of the {len(tuned.sustained_first)} shapes alone</summary>",
        "",
        "Ours and three of cuBLASLt's algorithms, its first choice among them, each alone without a pause in four turns, forwards and backwards, after "
        "the card has settled at its power limit.",
        "",
        "| shape | us | TFLOP/s | MHz | W | to the first choice | to the best | configuration |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ours = sustained_of(row)
        if row["key"] in tuned.sustained_first and ours is not None:
            alone = ours["sustained"]
            tflops = 2e-6 * row["m"] * row["n"] * row["k"] / alone["us"]
            lines.append(
                f"| {row['key']} | {alone['us']:.1f} | {tflops:.0f} | {_whole(alone.get('clock_mhz'))} | {_whole(alone.get('watts'))} "
                f"| {tuned.sustained_first[row['key']]:.3f} | {tuned.sustained_best[row['key']]:.3f} | `{ours['detail']}` |"
            )
    return [*lines, "", "</details>"]


def _shares(rows: list[dict[str, Any]], random: dict[str, Any] | None) -> list[str]:
    listed = untuned_of_tuned(rows)
    text = f"What the model chooses untuned reaches {mean(listed.values()):.3f} of the tuned speed on these"
    if random is not None:
        others = [1 / row["untuned_ratio"] for row in random["rows"] if row["untuned_ratio"]]
        seconds = mean(row["seconds"] for row in random["rows"])
        text += f", and {mean(others):.3f} of what tuning found in {seconds:.1f} s a shape on {len(others)} other shapes drawn at random"
    return [text + " (geometric means)."]


def _shape_row(row: dict[str, Any]) -> str:
    ours, untuned = entry_of(row, "tuned"), entry_of(row, "untuned")
    sizes = f"{row['m']}, {row['n']}, {row['k']}"
    if ours is None or not ours["to_first"]:
        return f"| {row['key']} | {sizes} | | | | | | |"
    chosen = f"{untuned['to_first']['ratio']:.3f}" if untuned is not None else ""
    way = ", dependent launch" if ours["dependent"] else ""
    return (
        f"| {row['key']} | {sizes} | {ours['us']:.2f} | {ours['tflops']:.0f} | {_ratio(ours['to_first'])} | {_ratio(ours['to_best'])} "
        f"| {chosen} | `{ours['detail']}`{way} |"
    )


def _ratio(pairs: dict[str, Any]) -> str:
    return f"{pairs['ratio']:.3f} ({pairs['low']:.3f} to {pairs['high']:.3f})"


def _limits(results: Path) -> str:
    """The shapes that stay below cuBLASLt, with the hardware's counters of both kernels."""
    found = _read(results, "hopper_limits")
    if found is None or not found["rows"]:
        return ""
    lines = [
        "Below 1.00 of the first choice or 0.99 of the best, with Nsight Compute's counters of ours and (cuBLASLt's):",
        "",
    ]
    for row in found["rows"]:
        parts = [f"- {row['name']}: {row['to_first']['ratio']:.3f} and {row['to_best']['ratio']:.3f}"]
        if row.get("tried"):
            parts.append(f"{row['tried'].get('measured', 0)} configurations measured")
        for key, what, scale in (
            ("tensor_active_percent", "tensor cores active {} %", 1.0),
            ("l2_hit_percent", "L2 hits {} %", 1.0),
            ("dram_read_bytes", "read from memory {} MB", 1e-6),
            ("nanoseconds", "{} us under the profiler", 1e-3),
        ):
            ours, theirs = (row[who].get(key) for who in ("ours", "cublaslt"))
            if ours is not None and theirs is not None:
                parts.append(what.format(f"{ours * scale:.1f} ({theirs * scale:.1f})"))
        lines.append("; ".join(parts) + ".")
    return "\n".join(lines)


def chart(results: Path = RESULTS) -> str | None:
    """The chart of the shapes as an SVG document; None where they were not measured."""
    found = _read(results, "hopper_shapes")
    if found is None:
        return None
    from stridewright.layout.draw.chart import Bar, BarGroup, ratio_chart

    device = found["runs"][found["rows"][-1]["run"]]["device"]
    groups = []
    for row in found["rows"]:
        bars = []
        for label, series, which in (
            ("tuned", "tuned, to cuBLASLt's first choice", "to_first"),
            ("tuned", "tuned, to the best of its list", "to_best"),
            ("untuned", "untuned, to its first choice", "to_first"),
        ):
            entry = entry_of(row, label)
            if entry is not None and entry[which]:
                pairs = entry[which]
                tip = f"{entry['us']:.2f} us, {entry['tflops']:.0f} TFLOP/s, {entry['detail']}"
                bars.append(Bar(series, pairs["ratio"], pairs["low"], pairs["high"], tip))
        if bars:
            groups.append(BarGroup(f"{row['key']}  {row['m']} x {row['n']} x {row['k']}", bars))
    notes = [
        f"{device['name']}, driver {device['driver_version']}, cuBLASLt {device['cublaslt']}, {device['date'][:10]}",
        "bf16, D = A B^T; medians over turns with their 95 % intervals; right of the dashed line ours is faster",
    ]
    drawn = ratio_chart(groups, "Speed beside cuBLASLt, shape by shape", "cuBLASLt's time", notes=notes)
    return drawn.svg() + "\n"


# ---- what was measured before -----------------------------------------------------------------------------------------


def _speed(results: Path) -> str:
    speed = _read(results, "gemm_hopper_speed")
    assert speed is not None
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


# ---- the host, and whether it is right --------------------------------------------------------------------------------


def _host(results: Path) -> str:
    """Host time of a call and cold starts, in a sentence each."""
    found = []
    host, cold = _read(results, "hopper_host"), _read(results, "hopper_cold")
    if host is not None:
        us = {row["way"]: row["us"] for row in host["rows"]}
        text = f"A bound launch takes {us['bound launch']:.1f} us of the host's time, `gemm()` into a given output {us['gemm(), out given']:.1f}"
        if "torch.mm, out given" in us:
            text += f"; `torch.mm`, in turns with them, {us['torch.mm, out given']:.1f}"
        found.append(text + ".")
    if cold is not None:
        empty, warm = (cold["median"][name] for name in ("empty cache", "from the cache"))
        found.append(
            f"From nothing to the first right result of {cold['shape'].replace(',', ' x ')}: {empty['seconds']:.2f} s with an empty "
            f"cache, {1000 * warm['seconds']:.0f} ms from it (the package's import counts, making the CUDA context does not)."
        )
    return " ".join(found)


def _right(results: Path) -> str:
    """How much was found right."""
    found = []
    check, pairs = _read(results, "gemm_hopper_check"), _read(results, "hopper_pairs")
    if check is not None:
        passed = sum(row["passed"] for row in check["rows"])
        configurations = len({row["config"] for row in check["rows"]})
        worst = max(row["relative_error"] for row in check["rows"])
        exact = [row["bit_exact"] for row in check["rows"] if row["bit_exact"] is not None]
        found.append(
            f"Right on the same GPU: {passed} of {len(check['rows'])} runs over {configurations} configurations, largest relative "
            f"error {worst:.2g} (bf16 rounding alone allows up to {2**-8:.2g}); {sum(exact)} of {len(exact)} runs on small "
            "integers bit for bit."
        )
    if pairs is not None:
        found.append(
            f"Of {pairs['pairs']} random pairs of shape and configuration, over {pairs['kernels']} kernels with every feature, "
            f"{pairs['passed']} were right, into outputs full of NaN; {pairs['bit_equal']} of them, all but those that add in the "
            "order of arrival, gave the same bits twice."
        )
    return " ".join([*found, "Recorded in `benchmarks/results/`."]) if found else ""


def _breadth(results: Path) -> str:
    """What goes beyond plain bf16: how much was right, and how fast beside cuBLASLt."""
    cases, speed = _read(results, "breadth_hopper"), _read(results, "breadth_speed_hopper")
    found = []
    if cases is not None:
        found.append(
            f"Of {cases['run']} random mixtures of types, majors, fused terms, batches, groups and configurations, over "
            f"{cases['kernels']} kernels, {cases['counts']['right']} were right beside float64."
        )
    if speed is not None:
        lines = {name: line for name, line in speed["fp8"].items() if isinstance(line, dict) and "e4m3 fast" in line}
        first, best = ([line["e4m3 fast"][which]["ratio"] for line in lines.values()] for which in ("first", "best"))
        fused = {
            name: line["fused_over_plain"]["ratio"]
            for name, line in speed["fused"].items()
            if "fused_over_plain" in line
        }
        beside = speed["promotion"]["block scales beside cuBLASLt"].values()
        ratios = [line["cuBLASLt through PyTorch"] for line in beside]
        blocks = [one["ratio"] for one in ratios if isinstance(one, dict)]
        groups = [line["ratio"] for line in speed["grouped"].values() if "ratio" in line]
        found.append(
            f"8-bit floats with one scale a tensor, the fastest of some twenty configurations, which the table holds, on {len(lines)} shapes (cubes and DeepSeek-V3's): {mean(first):.3f} of cuBLASLt's "
            f"first choice with its fast accumulation (least {min(first):.3f}), {mean(best):.3f} of the best of its list (least "
            f"{min(best):.3f}). Scales of blocks (1 x 128, 128 x 128) on {len(blocks)} of them: {mean(blocks):.3f} of cuBLASLt's (least {min(blocks):.3f}). Groups of rows "
            f"beside a loop of cuBLASLt's: {', '.join(f'{ratio:.2f}' for ratio in groups)}. Bias and gelu cost "
            f"{', '.join(f'{100 * (ratio - 1):.1f} % at {name} cubed' for name, ratio in fused.items())} over plain."
        )
    return " ".join(found)


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
        drawn = chart()
        if drawn is not None:
            (RESULTS / CHART).write_text(drawn, encoding="utf-8")
    else:
        print(numbers())


if __name__ == "__main__":
    main()
