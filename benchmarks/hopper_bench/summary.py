"""What the rows of a shapes file say together: geometric means, the worst shapes, untuned beside tuned, sustained."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

LEFT_OUT = "odd"
"""The shape that the second mean leaves out: its rows of D are no multiple of 16 bytes, which cuBLASLt's kernels pay dearly."""

COMPUTE_BOUND_US = 20.0
"""A shape counts as compute-bound where the tensor cores bound it for so long at least: shorter ones are bound by launches."""


def winner(row: dict[str, Any], label: str) -> dict[str, Any] | None:
    """The fastest entry of a name."""
    named = [entry for entry in row["entries"] if label in entry["labels"]]
    return min(named, key=lambda entry: entry["us"], default=None)


def fastest_of_ours(row: dict[str, Any]) -> dict[str, Any] | None:
    """The fastest in turns of the entries that are configurations of ours, but for those that only the other load's table has."""
    found = [entry for entry in row["entries"] if entry["config"] is not None and entry["labels"] != ["sustained"]]
    return min(found, key=lambda entry: entry["us"], default=None)


def entry_of(row: dict[str, Any], label: str) -> dict[str, Any] | None:
    """``winner``, or for "tuned" the fastest of ours: a tuned program has tried the chosen configuration too."""
    return fastest_of_ours(row) if label == "tuned" else winner(row, label)


def sustained_of(row: dict[str, Any]) -> dict[str, Any] | None:
    """What is tuned for sustained load and ran alone; what is tuned for bursts where nothing else is; None where neither ran alone."""
    for label in ("sustained", "tuned"):
        alone = [entry for entry in row["entries"] if label in entry["labels"] and entry["sustained"]]
        if alone:
            return min(alone, key=lambda entry: float(entry["us"]))
    return None


def compute_bound(row: dict[str, Any]) -> bool:
    """Whether the tensor cores bound a shape, and for long enough."""
    return bool(row["floor"]["bound"] == "tensor cores" and row["floor"]["us"] >= COMPUTE_BOUND_US)


@dataclass(frozen=True)
class Summary:
    """Ratios of cuBLASLt's time to ours for one name over all rows: ``first`` of its first choice, ``best`` of the best of
    its list, by the row's key. ``sustained_...``: of what is tuned for sustained load, each alone.
    """

    label: str
    first: dict[str, float]
    best: dict[str, float]
    sustained_first: dict[str, float]
    sustained_best: dict[str, float]

    def lines(self) -> list[str]:
        """The summary in words."""
        found = []
        for name, ratios in (("first choice", self.first), ("best", self.best)):
            if ratios:
                low = min(ratios, key=lambda key: ratios[key])
                found.append(
                    f"{self.label} to cuBLASLt's {name}: geometric mean {mean(ratios.values()):.3f} of {len(ratios)}, "
                    f"without {LEFT_OUT} {mean(without(ratios).values()):.3f}; least {ratios[low]:.3f} ({low})"
                )
        for name, ratios in (("first choice", self.sustained_first), ("best", self.sustained_best)):
            if ratios:
                low = min(ratios, key=lambda key: ratios[key])
                found.append(
                    f"{self.label} alone, sustained, to cuBLASLt's {name}: {mean(ratios.values()):.3f} of {len(ratios)} "
                    f"compute-bound shapes; least {ratios[low]:.3f} ({low})"
                )
        return found


def mean(values: Iterable[float]) -> float:
    """The geometric mean; 1 of none."""
    listed = list(values)
    return statistics.geometric_mean(listed) if listed else 1.0


def without(ratios: dict[str, float], name: str = LEFT_OUT) -> dict[str, float]:
    """All but one."""
    return {key: ratio for key, ratio in ratios.items() if key != name}


def summary(rows: Iterable[dict[str, Any]], label: str) -> Summary:
    """The ratios of every row that has an entry of that name and was compared with cuBLASLt."""
    made = Summary(label, {}, {}, {}, {})
    for row in rows:
        ours = entry_of(row, label)
        if ours is None or not ours["to_first"]:
            continue
        made.first[row["key"]] = ours["to_first"]["ratio"]
        made.best[row["key"]] = ours["to_best"]["ratio"]
        if label == "tuned":
            ours = sustained_of(row) or ours
        if not ours["sustained"] or not compute_bound(row):
            continue
        alone = [entry for entry in row["entries"] if "cublaslt" in entry["labels"] and entry["sustained"]]
        if alone:
            first = row["entries"][row["first"]]["sustained"]
            if first:
                made.sustained_first[row["key"]] = first["us"] / ours["sustained"]["us"]
            least = min(entry["sustained"]["us"] for entry in alone)
            made.sustained_best[row["key"]] = least / ours["sustained"]["us"]
    return made


def untuned_of_tuned(rows: Iterable[dict[str, Any]]) -> dict[str, float]:
    """For each row the speed of the untuned configuration as a share of the tuned one's, both from the same turns."""
    found = {}
    for row in rows:
        untuned, tuned = winner(row, "untuned"), entry_of(row, "tuned")
        if untuned is not None and tuned is not None:
            found[row["key"]] = tuned["us"] / untuned["us"]
    return found
