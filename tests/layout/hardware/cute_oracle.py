"""Reads what CuTe's headers printed (tests/data/cute_layouts.txt)."""

from __future__ import annotations

import re
from pathlib import Path

from stridewright.layout.core import Layout

TEXT = (Path(__file__).parents[2] / "data" / "cute_layouts.txt").read_text()


def layout(text: str) -> Layout:
    """A layout as CuTe prints it, static integers marked by an underscore."""
    return Layout.parse(text.replace("_", ""))


def blocks(kind: str) -> list[tuple[str, dict[str, str]]]:
    """The blocks that begin with a word (MMA, COPY): name, and the lines under it by their first word."""
    found: list[tuple[str, dict[str, str]]] = []
    for line in TEXT.splitlines():
        if line.startswith(kind + " "):
            found.append((line[len(kind) + 1 :].strip(), {}))
        elif line.startswith("  ") and found and not line.startswith("  idesc "):
            key, value = line.split(None, 1)
            found[-1][1].setdefault(key, value.strip())
        elif line.startswith("  idesc ") and found and line.split()[1].startswith("0x"):
            found[-1][1].setdefault("idesc", line.split()[1])
        elif not line.startswith(" ") and found:
            found.append(("", {}))
    return [(name, fields) for name, fields in found if name]


def descriptors(prefix: str) -> list[dict[str, str]]:
    """The UDESC or GDESC entries."""
    pattern = re.compile(
        rf"^{prefix} (\w+) (K|MN)\s+(\S+).*?tile \((\S+),(\S+)\) smem Sw<(\d),(\d),(\d)> o smem_ptr\[(\d+)b\]\(unset\) o (\S+)\n"
        r"\s+desc=(0x[0-9a-f]+).*?LBO\(16B\)=(\d+) SBO\(16B\)=(\d+).*?layout=(\d) \| desc-iter layout (\S+)",
        re.MULTILINE,
    )
    names = [
        "type",
        "major",
        "name",
        "rows",
        "k",
        "b",
        "m",
        "s",
        "bits",
        "layout",
        "word",
        "lbo",
        "sbo",
        "code",
        "advance",
    ]
    return [dict(zip(names, match, strict=True)) for match in pattern.findall(TEXT)]
