"""What measured runs say beyond the form of the selection model: the nearer a run, the more.

A configuration of a problem is a point; points near one another have sizes, tiles, clusters and turns in common. The
correction at a point is a sum over measured runs, each with its weight times its likeness: Gaussian-process regression of
what the form was off by within each shape (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2.2 and
8.3.1, subset of regressors), with a Matern kernel of order 3/2. Where no run is near there is no correction, but doubt.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .model_table import FITTED_ON_SMS, Fitted
from .model_work import Features, Work, work_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

REACH = 1.5
"""Distance in ``coordinates`` over which likeness falls to about a half."""


def coordinates(x: Features, work: Work) -> NDArray[np.float64]:
    """The point of each configuration, a row each. A step of 1 along any column makes a run another one. Columns: sizes of the
    problem (rows of A, of B, K), extents of a tile along them, its slots, its cluster, who multiplies, how K is divided,
    turns, stores, rows between sectors, CTAs, and whether a ring holds all there is. The scales are those that predicted
    shapes best that had been left out.
    """
    swapped = x.swapped > 0

    def sides(of_rows: Any, of_columns: Any) -> tuple[Any, Any]:
        return np.where(swapped, of_columns, of_rows), np.where(swapped, of_rows, of_columns)

    sizes, tiles = sides(x.rows, x.columns), sides(x.tile_m, x.tile_n)
    clusters = sides(x.cluster_m, x.cluster_n)
    columns = (
        *(0.15 * np.log2(size) for size in sizes),
        0.3 * np.log2(x.k),
        0.7 * np.log2(tiles[0]),
        0.5 * np.log2(tiles[1]),
        0.35 * np.log2(x.tile_k),
        0.5 * np.log2(x.stages),
        0.6 * np.log2(clusters[0]),
        0.9 * np.log2(clusters[1]),
        0.35 * x.pingpong,
        0.35 * (x.consumers == 1),
        0.25 * (x.consumers == 3),
        1.5 * x.swapped,
        1.1 * np.log2(np.maximum(1, x.parts)),
        0.6 * work.divided,
        1.0 * x.atomic,
        0.4 * np.minimum(work.turns, 4) * ~work.divided,
        0.8 * x.direct,
        0.8 * (x.k * 2 % 32 != 0),
        1.5 * work.ctas / FITTED_ON_SMS,
        0.35 * (work.slots <= x.stages),
    )
    return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)


def likeness(points: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """How like each other point a point is, from 0 to 1.

    >>> here = np.zeros((1, 21))
    >>> float(likeness(here, here)[0, 0])
    1.0
    """
    squares = (points**2).sum(axis=1)[:, None] + (others**2).sum(axis=1) - 2 * points @ others.T
    distance = np.sqrt(np.maximum(squares, 0) * (3 / REACH**2))
    found: NDArray[np.float64] = (1 + distance) * np.exp(-distance)
    return found


@lru_cache(maxsize=2)
def _runs(fit: Fitted) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The points of the runs that a fit kept, and their weights."""
    rows = np.asarray(fit.runs, dtype=np.float64)
    if not len(rows):
        return np.zeros((0, 0)), np.zeros(0)
    x = Features(*rows[:, :-1].T)
    return coordinates(x, work_of(x, FITTED_ON_SMS)), rows[:, -1]


def beyond_form(x: Features, work: Work, fit: Fitted) -> NDArray[np.float64]:
    """The logarithm to add to the form's: what like runs were off by, and the doubt about what is like none."""
    points, weights = _runs(fit)
    if not len(weights):
        return np.full(x.k.shape, fit.doubt)
    alike = likeness(coordinates(x, work), points)
    found: NDArray[np.float64] = alike @ weights + fit.doubt * (1 - alike.max(axis=1))
    return found
