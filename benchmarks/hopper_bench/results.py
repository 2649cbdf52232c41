"""A file of results that a program adds to, run after run, and can be stopped at any time."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def device_record() -> dict[str, Any]:
    """What figures were measured on: GPU, driver, clocks and power now, versions, date."""
    import cupy

    from stridewright.codegen import cublaslt, nvrtc
    from stridewright.codegen.nvml import gpu_or_none

    gpu = gpu_or_none()
    record: dict[str, Any] = {} if gpu is None else gpu.describe()
    if not record.get("name"):
        name = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())["name"]
        record["name"] = name.decode() if isinstance(name, bytes) else str(name)
    record["date"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    record["nvrtc"] = ".".join(map(str, nvrtc.library().version))
    record["cupy"] = cupy.__version__
    record["cuda_driver_api"] = int(cupy.cuda.runtime.driverGetVersion())
    try:
        record["cublaslt"] = cublaslt.version()
    except cublaslt.CublasLtError as error:
        record["cublaslt"] = str(error)
    return record


class Results:
    """``runs`` (a record of the device for each run) and ``rows`` in one JSON file, written whole after each row. A row
    has a ``key``; a newer row of the same key takes the older one's place.
    """

    def __init__(self, path: Path, device: dict[str, Any], **run: Any) -> None:
        self.path = path
        self.runs: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
            self.runs, self.rows = found["runs"], found["rows"]
        self.runs.append({"device": device, **run})

    def has(self, key: str) -> bool:
        """Whether a row of that key was recorded, in this run or an earlier one."""
        return any(row["key"] == key for row in self.rows)

    def begin(self, key: str) -> None:
        """Notes what is being measured, so that ``stuck`` knows it if the program does not live to record it."""
        self.runs[-1]["begun"] = key
        self.write()

    def stuck(self) -> set[str]:
        """What an earlier run began and never recorded: a kernel of it does not end, or ends the use of the card."""
        begun = {run["begun"] for run in self.runs[:-1] if "begun" in run}
        return begun - {row["key"] for row in self.rows}

    def add(self, key: str, row: dict[str, Any]) -> None:
        """Records a row and writes the file."""
        made = {"key": key, "run": len(self.runs) - 1, **row}
        for place, other in enumerate(self.rows):
            if other["key"] == key:
                self.rows[place] = made
                break
        else:
            self.rows.append(made)
        self.write()

    def finish(self, **facts: Any) -> None:
        """Adds facts to this run's record and writes the file."""
        self.runs[-1].update(facts)
        self.write()

    def write(self) -> None:
        """The file as it stands, in one step: a run that is stopped leaves a whole file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"runs": self.runs, "rows": self.rows}, indent=None, separators=(",", ":"), allow_nan=False)
        # A line for each row: differences can be read, and the file stays small.
        text = text.replace('{"key":', '\n{"key":').replace('{"device":', '\n{"device":') + "\n"
        temporary = self.path.with_suffix(".partial")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, self.path)


def finite(value: Any) -> Any:
    """The value with numbers that JSON cannot hold as None, and long ones at seven digits."""
    if isinstance(value, float):
        return None if value != value or value in (float("inf"), float("-inf")) else float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def listed_shapes(path: Path, first: int = 0, most: int | None = None, names: str = "") -> Iterator[dict[str, Any]]:
    """The shapes of a file like shapes.json, or of a tuner's report, whose rows have a name and a ``shape``: ``most`` from
    number ``first`` on, or those named (with commas).
    """
    found = json.loads(path.read_text(encoding="utf-8"))
    if "shapes" in found:
        shapes = found["shapes"]
    else:
        shapes = [
            dict(zip(("name", "m", "n", "k"), (row["name"], *row["shape"]), strict=True)) for row in found["rows"]
        ]
    wanted = [name for name in names.split(",") if name]
    unknown = set(wanted) - {shape["name"] for shape in shapes}
    if unknown:
        raise ValueError(f"{path}: has no shape {', '.join(sorted(unknown))}")
    chosen = shapes[first:] if most is None else shapes[first : first + most]
    yield from (shape for shape in chosen if not wanted or shape["name"] in wanted)
