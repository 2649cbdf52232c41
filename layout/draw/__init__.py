"""Pictures of layouts, swizzles, banks and fragments as SVG, and the same as text for a terminal.

Each view computes nothing of its own that the library computes: its numbers are those of the algebra, of
``layout.banks`` and of ``layout.hardware``. A view returns a :class:`Drawing`: ``svg()``, ``html()``, ``text()``, and shows
itself in a notebook. Knows nothing of kernels.
"""

from __future__ import annotations

if __name__ != "stridewright.layout.draw":
    raise ImportError(
        f"this folder is imported as stridewright.layout.draw, not as {__name__}: `import stridewright.layout.draw`"
    )

from .bank_map import bank_map
from .bits import swizzle_bits
from .card import layout_card, layout_svg
from .drawing import Drawing, beside, stack
from .heat import access_map

__all__ = [
    "Drawing",
    "access_map",
    "bank_map",
    "beside",
    "layout_card",
    "layout_svg",
    "stack",
    "swizzle_bits",
]
