"""Sliders over a swizzle's parameters and an address, for notebooks. Needs ipywidgets, which the notebooks extra brings."""

from __future__ import annotations

from typing import Any

from .. import LayoutError, Swizzle
from .bits import swizzle_bits

BITS = 12


def swizzle_sliders(bits: int = 3, base: int = 4, shift: int = 3, address: int = 0x380, unit_bytes: int = 1) -> Any:
    """The bit diagram of Swizzle(bits, base, shift) with a slider for each parameter and for the address it follows.

    Returns an ipywidgets widget; its ``result`` is what is shown, a Drawing, or where the parameters make no swizzle the
    reason. Raises ImportError with what to install.

    >>> swizzle_sliders().result.facts["swizzled"]  # doctest: +SKIP
    1008
    """
    try:
        import ipywidgets  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as error:
        raise ImportError("sliders need ipywidgets: pip install 'stridewright[notebooks]'") from error

    def show(bits: int, base: int, shift: int, address: int) -> Any:
        try:
            return swizzle_bits(Swizzle(bits, base, shift), max(BITS, base + abs(shift) + bits), unit_bytes, address)
        except LayoutError as error:
            return str(error)

    def slider(value: int, low: int, high: int, name: str) -> Any:
        return ipywidgets.IntSlider(value=value, min=low, max=high, description=name)

    widget = ipywidgets.interactive(
        show,
        bits=slider(bits, 0, 5, "B"),
        base=slider(base, 0, 7, "M"),
        shift=slider(shift, -5, 7, "S"),
        address=slider(address, 0, (1 << BITS) - 1, "address"),
    )
    widget.update()
    return widget
