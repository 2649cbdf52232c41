"""The explorer as a widget for notebooks. Python computes every picture and number; the front end in ``widget.js`` shows them.

Needs anywidget, which the ``notebooks`` extra brings. Without it, and where no kernel answers, the same state shows as a still picture.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from .. import LayoutError
from .explorer import DTYPES, INSTRUCTIONS, SLIDERS, Explorer

FOLDER = Path(__file__).parent


def message(explorer: Explorer, serial: int = 0, error: str = "") -> dict[str, Any]:
    """What the front end shows of a state, as plain values: state, fields, ranges, choices, numbers, panels (name, SVG), phases, error.

    ``serial``: the number of the request that it answers; ``error``: why that request was refused, "" if it was not.

    >>> sent = message(Explorer(), 3)
    >>> sent["serial"], sent["phases"], [name for name, _ in sent["panels"]]
    (3, 4, ['layout', 'memory', 'phase', 'swizzle'])
    """
    view = explorer.view
    fields = {name: getattr(explorer, name) for name in ("shape", "stride", "dtype", "instruction", "lanes")}
    last = max(view.phases - 1, 0)
    return {
        "serial": serial,
        "state": explorer.state,
        "fields": {**fields, "bits": explorer.bits, "base": explorer.base, "shift": explorer.shift}
        | {"phase": min(explorer.phase, last)},
        "ranges": {**{name: list(ends) for name, ends in SLIDERS.items()}, "phase": [0, last]},
        "choices": {"dtype": list(DTYPES), "instruction": list(INSTRUCTIONS)},
        "numbers": [list(row) for row in view.numbers.rows],
        "panels": [[name, picture.svg()] for name, picture in view.panels],
        "phases": view.phases,
        "error": error or view.error,
    }


@cache
def _widget_class() -> Any:
    try:
        import anywidget  # type: ignore[import-not-found, import-untyped, unused-ignore]
        import traitlets  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as error:
        raise ImportError("the widget needs anywidget: pip install 'stridewright[notebooks]'") from error

    class ExplorerWidget(anywidget.AnyWidget):  # type: ignore[misc, unused-ignore]
        """An explorer that a front end shows. ``explorer``: its state now; ``state``: the same as a line."""

        _esm = FOLDER / "widget.js"
        _css = FOLDER / "widget.css"
        view = traitlets.Dict().tag(sync=True)
        request = traitlets.Dict().tag(sync=True)

        def __init__(self, explorer: Explorer) -> None:
            self.explorer = explorer
            super().__init__(view=message(explorer))
            self.observe(self._answer, "request")

        @property
        def state(self) -> str:
            """The state as one line, which ``explore`` takes."""
            return self.explorer.state

        def _answer(self, change: Any) -> None:
            serial, error = change["new"].get("serial", 0), ""
            try:
                self.explorer = self.explorer.replaced(change["new"].get("changes", {}))
            except LayoutError as refused:
                error = str(refused)
            self.view = message(self.explorer, serial, error)

        def _repr_html_(self) -> str:
            """For hosts that know no widgets."""
            return self.explorer._repr_html_()

        def _repr_mimebundle_(self, **options: Any) -> Any:
            """With the still picture beside the widget: what shows where no kernel answers."""
            shown = super()._repr_mimebundle_(**options)
            still = {"text/html": self._repr_html_()}
            if isinstance(shown, tuple):
                return {**still, **shown[0]}, shown[1]
            return {**still, **(shown or {})}

    return ExplorerWidget


def explore(state: str = "") -> Any:
    """The widget, in a state that it gave out before (``widget.state``, or the line it shows); by default a bf16 tile under the 128-byte swizzle.

    Where anywidget is not installed, the Explorer itself, which shows as a still picture. Raises LayoutError for what is no state.

    >>> explore("swizzle=0,3,3").state.split()[2]
    'swizzle=0,3,3'
    """
    explorer = Explorer.parse(state)
    try:
        return _widget_class()(explorer)
    except ImportError:
        return explorer
