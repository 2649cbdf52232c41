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

from .atlas import AtlasEntry, atlas, swizzle_atlas
from .atom import atom_view
from .bank_map import bank_map
from .bits import swizzle_bits
from .card import layout_card, layout_svg
from .drawing import Drawing, beside, stack
from .explorer import Explorer
from .fragment import draw_fragment, fragment_view, tensor_memory_map, tensor_memory_view
from .heat import access_map
from .linked_source import LinkedCell, LinkedTable, SourceLine, linked_source
from .machine import grouped_order, shared_memory_map, tile_order, tiles_touched
from .operand import descriptor_view, tensor_map_view
from .pipeline import Kind, TimelineBar, Track, pipeline_timeline
from .race import AccessNode, race_view
from .sliders import swizzle_sliders
from .strip import algebra_strip
from .tuning import Roof, RooflinePoint, TunePoint, model_scatter, roofline, tuner_landscape
from .waits import Edge, Node, wait_graph
from .widget import explore

__all__ = [
    "AccessNode",
    "AtlasEntry",
    "Drawing",
    "Edge",
    "Explorer",
    "Kind",
    "LinkedCell",
    "LinkedTable",
    "Node",
    "Roof",
    "RooflinePoint",
    "SourceLine",
    "TimelineBar",
    "Track",
    "TunePoint",
    "access_map",
    "algebra_strip",
    "atlas",
    "atom_view",
    "bank_map",
    "beside",
    "descriptor_view",
    "draw_fragment",
    "explore",
    "fragment_view",
    "grouped_order",
    "layout_card",
    "layout_svg",
    "linked_source",
    "model_scatter",
    "pipeline_timeline",
    "race_view",
    "roofline",
    "shared_memory_map",
    "stack",
    "swizzle_atlas",
    "swizzle_bits",
    "swizzle_sliders",
    "tensor_map_view",
    "tensor_memory_map",
    "tensor_memory_view",
    "tile_order",
    "tiles_touched",
    "tuner_landscape",
    "wait_graph",
]
