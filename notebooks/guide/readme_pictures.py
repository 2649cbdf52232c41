"""README's three pictures, drawn by the code: a swizzle, a kernel in time, its source and the layouts behind it.

    python notebooks/guide/readme_pictures.py            # list them
    python notebooks/guide/readme_pictures.py --write    # draw them into notebooks/pictures/

Where README is read a picture is an image: nothing can be pointed at, so tooltips and links are left out.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "pictures"


def swizzle() -> Any:
    """Eight rows of a tile, as ldmatrix reads them, before and after the 128-byte swizzle."""
    from stridewright.layout import Layout, Swizzle
    from stridewright.layout.banks import Access
    from stridewright.layout.draw import access_map

    rows = Access(16, lanes=[(row, 0) for row in range(8)], op="ldmatrix", element_bytes=2)
    return access_map(Layout((8, 64), (64, 1)), rows, Swizzle(3, 3, 3))


def _gemm() -> Any:
    from stridewright import Gemm
    from stridewright.kernels.config import GemmConfig

    config = GemmConfig().replace(tile_m=128, tile_n=128, tile_k=64, stages=3, consumers=2)
    return Gemm(256, 256, 512, config=config)


def timeline() -> Any:
    """A block of a small GEMM, from its emulated PTX; the times are modelled, and the picture says so."""
    import ml_dtypes
    import numpy as np
    from stridewright.codegen.pictures import emulation_timeline

    gemm = _gemm()
    ones = np.ones((256, 512), ml_dtypes.bfloat16)
    found = gemm.emulate(ones, ones, sms=2, timeline=True).timeline
    return emulation_timeline(found, gemm.derivation, window=(0, 9000))


def source() -> Any:
    """The derived constants of the same GEMM's source."""
    from stridewright.codegen.pictures import source_picture

    return source_picture(_gemm())


PICTURES: dict[str, Callable[[], Any]] = {"swizzle": swizzle, "timeline": timeline, "source": source}


def image(drawing: Any) -> str:
    """The SVG without what only works in a page: tooltips (but the title), links, and their rules."""
    svg = drawing.svg()
    head, body = svg.split("</title>", 1)
    body = re.sub(r"<title>.*?</title>", "", body, flags=re.DOTALL)
    # What asks to be pointed at.
    body = re.sub(r"<text[^>]*>point at a line[^<]*</text>", "", body).replace(": point here for why", "")
    body = re.sub(r' data-[\w-]+="[^"]*"', "", body)
    body = re.sub(r"<style>\.sw:has.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r"></(rect|path)>", "/>", body)
    return f"{head}</title>{body}\n"


def main() -> None:
    """Draw the pictures, or say what they are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="draw them into notebooks/pictures/")
    wanted = parser.parse_args().write
    for name, draw in PICTURES.items():
        path = FOLDER / f"{name}.svg"
        if wanted:
            FOLDER.mkdir(exist_ok=True)
            path.write_text(image(draw()), encoding="utf-8")
        print(f"{path}: {(draw.__doc__ or '').splitlines()[0]}")


if __name__ == "__main__":
    main()
