"""The colours and the style sheet of every picture.

Fills are tints of Okabe and Ito's palette, which people with any common colour blindness tell apart ("Color Universal
Design", 2008); what is written on a fill is near black in light and dark alike, and a colour never says alone what no
text says. Each rule is written out for both schemes: not every SVG renderer knows CSS variables.
"""

from __future__ import annotations

GROUPS = 8
"""Colours of groups, classes k0 to k7."""
HEATS = 6
"""Steps of the scale from good to bad, classes h0 to h5."""

# Okabe-Ito: sky blue, orange, bluish green, yellow, blue, vermillion, reddish purple, and a grey for their black.
_PURE = ("#56b4e9", "#e69f00", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#8c8c8c")
_WHITE_SHARE = (0.45, 0.40, 0.45, 0.35, 0.50, 0.45, 0.45, 0.50)
_DARK_SHARE = (0.15, 0.15, 0.25, 0.10, 0.38, 0.25, 0.25, 0.30)
# From light blue over orange to vermillion: lightness falls monotonically, so that it reads in grey as well.
_HEAT = ("#bfe0f4", "#fde7b8", "#f8c873", "#f0a04b", "#e67a35", "#d9602b")

FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
CHARACTER = 0.61
"""Width of a character of that font over its size; the estimate that no text overlaps rests on it."""


def _tint(colour: str, white: float) -> str:
    channels = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(c + (255 - c) * white):02x}" for c in channels)


def group(number: int) -> str:
    """The class of a group's colour; the eighth group repeats the first's.

    >>> group(3), group(9)
    ('k3', 'k1')
    """
    return f"k{number % GROUPS}"


def heat(ways: float) -> str:
    """The class for an access that takes ``ways`` times its ideal: h0 for 1, then one step for each doubling.

    >>> [heat(ways) for ways in (1, 1.5, 2, 8, 32)]
    ['h0', 'h1', 'h1', 'h3', 'h5']
    """
    step, reached = 0, 1.0
    while reached < ways and step < HEATS - 1:
        reached, step = reached * 2, step + 1
    return f"h{step}"


def _rules(dark: bool) -> str:
    paper, ink, faint, line, soft = (
        ("#16181c", "#ececec", "#a9adb5", "#4a4e57", "#23262c")
        if dark
        else ("#ffffff", "#1b1b1b", "#5c5c5c", "#bdbdbd", "#f3f3f3")
    )
    warn = "#ff9457" if dark else "#b34700"
    good = "#4fc3a1" if dark else "#00694d"
    rules = [
        f".paper{{fill:{paper}}}",
        f"text{{fill:{ink}}}",
        f"text.faint{{fill:{faint}}}",
        f"text.warn{{fill:{warn}}}",
        f"text.good{{fill:{good}}}",
        "text.on{fill:#111}",
        f".cell{{stroke:{paper};stroke-width:1}}",
        f".empty{{fill:{soft}}}",
        f".box{{fill:{soft};stroke:{line};stroke-width:1}}",
        f".line{{fill:none;stroke:{line};stroke-width:1}}",
        f".arrow{{fill:none;stroke:{ink};stroke-width:1.3}}",
        # On cells, which are bright in both schemes; a panel's edge also runs over the paper.
        ".mark{fill:none;stroke:#111;stroke-width:2.5}",
        ".under{fill:none;stroke:#111;stroke-width:1.5}",
        f".panel{{fill:none;stroke:{ink};stroke-width:2.5}}",
        f".shared{{fill:{'#0b6b53' if dark else '#00543d'}}}",
        f".owner:hover .cell{{stroke:{ink};stroke-width:2.5}}",
        f".rule{{fill:none;stroke:{line};stroke-width:1;stroke-opacity:.45}}",
        f".dashed{{fill:none;stroke:{ink};stroke-width:1.3;stroke-dasharray:5 4}}",
        f".alarm{{fill:none;stroke:{warn};stroke-width:2.2}}",
        f".broken{{fill:none;stroke:{warn};stroke-width:2.2;stroke-dasharray:6 5}}",
        f".roof{{fill:none;stroke:{ink};stroke-width:2}}",
        ".hit{fill:transparent}",
    ]
    shares = _DARK_SHARE if dark else _WHITE_SHARE
    rules += [f".k{i}{{fill:{_tint(c, s)}}}" for i, (c, s) in enumerate(zip(_PURE, shares, strict=True))]
    rules += [f".h{i}{{fill:{c}}}" for i, c in enumerate(_HEAT)]
    return "".join(f".sw {rule}" for rule in rules)


STYLE = (
    # A label lets the pointer through to its cell, whose tooltip it must not hide.
    f".sw{{font-family:{FONT}}}.sw .bold{{font-weight:bold}}.sw text{{pointer-events:none}}"
    # What the pointer links is outlined in the colour of the ink (links.py).
    + ".sw{color:#1b1b1b}"
    + _rules(dark=False)
    + "@media (prefers-color-scheme:dark){.sw{color:#ececec}"
    + _rules(dark=True)
    + "}"
)
