"""What an H200 did, read from tests/data/h200."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).parents[2] / "data" / "h200"


@cache
def arrays(name: str) -> dict[str, NDArray[Any]]:
    """Every array of one file."""
    with np.load(FOLDER / f"{name}.npz") as data:
        return {key: data[key] for key in data.files}


def records(name: str, key: str) -> Any:
    """The JSON description that an array of the file holds."""
    return json.loads(str(arrays(name)[key]))
