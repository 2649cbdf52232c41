"""Which SMs belong to one GPC, and which number a cluster of a grid should have on each of them (``launch="placed"``).

The SMs of a GPC read L2 through a common unit; clusters whose numbers follow one another compute neighbouring tiles and share
panels, so a GPC's clusters get neighbouring numbers. No register tells a kernel its GPC, but a cluster always lies within one:
a probe launches clusters of several sizes and looks where they went. Chips differ in which SMs are switched off, so that each
device is asked. Knows no GEMM; the kernel's part is ``kernels/cuda/placement.cuh``.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_logger = logging.getLogger(__name__)

_SIZES = (8, 7, 6, 5, 4, 3, 2)
"""Of clusters: 8 is the largest that runs everywhere, and those that do not divide a GPC overlap the others."""
_TURNS = 4
_GPCS, _SMS = 8, 132
"""GPCs and SMs of an H100 or H200."""
_MOST_SMS = 144
"""Of a chip of this kind, before some are switched off (NVIDIA H100 whitepaper): no SM has a higher number."""


def homes(gpcs: Sequence[int], clusters: int) -> NDArray[Any]:
    """For each SM, given the GPC of each, the number of the cluster that belongs there: uint32, below ``clusters``, ascending
    through the SMs of one GPC, then of the next. ValueError without clusters.

    >>> homes([0, 0, 1, 1, 0, 0, 1, 1], 4).tolist()
    [0, 0, 2, 2, 1, 1, 3, 3]
    """
    if clusters < 1:
        raise ValueError(f"clusters={clusters}: must be at least 1")
    ordered = np.argsort(np.asarray(gpcs), kind="stable")
    found = np.empty(len(gpcs), dtype=np.uint32)
    found[ordered] = np.arange(len(gpcs)) * clusters // len(gpcs)
    return found


def any_chip(sms: int = _SMS) -> list[int]:
    """The GPC of each of ``sms`` SMs where there is no chip to ask: pairs of SMs, dealt out in turn.

    >>> any_chip()[:6], len(any_chip())
    ([0, 0, 1, 1, 2, 2], 132)
    """
    return [sm // 2 % _GPCS for sm in range(sms)]


def together(sms: int, clusters: Iterable[Sequence[int]]) -> list[int]:
    """The GPC of each of ``sms`` SMs, numbered as they first appear, if those of each cluster lie in one.

    >>> together(6, [(0, 2), (2, 4), (1, 3)])
    [0, 1, 0, 1, 0, 2]
    """
    above = list(range(sms))

    def top(sm: int) -> int:
        while above[sm] != sm:
            above[sm] = above[above[sm]]
            sm = above[sm]
        return sm

    for first, *others in clusters:
        for other in others:
            above[top(other)] = top(first)
    names: dict[int, int] = {}
    return [names.setdefault(top(sm), len(names)) for sm in range(sms)]


def gpcs() -> list[int]:
    """The GPC of each SM of the current device, found once by a probe of some milliseconds. Where that fails, a guess: nothing
    but speed depends on it.
    """
    from .launch import current_device, tell_once

    device = current_device()
    try:
        return _gpcs_of(device)
    except Exception as error:  # a driver that refuses, a compiler that is missing, a stream that is captured
        tell_once(
            _logger,
            f"which SMs of device {device} form a GPC could not be found out ({error}): placed clusters are slower",
        )
        return any_chip(_MOST_SMS)  # a kernel reads the place of its SM, whatever its number is


@functools.lru_cache(maxsize=64)
def _gpcs_of(device: int) -> list[int]:
    return _probed(device)


_PROBE = """
extern "C" __global__ void __cluster_dims__({size}, 1, 1) gpc_probe_{size}(unsigned int *found) {{
    unsigned int sm, sms;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("mov.u32 %0, %%nsmid;" : "=r"(sms));
    found[1 + blockIdx.x] = sm;
    if (blockIdx.x == 0) found[0] = sms;
}}
"""


def _probed(device: int) -> list[int]:
    """What the clusters of the probe say; ``device`` must be current."""
    from . import driver
    from .build import build
    from .launch import LoadedKernel, import_cupy
    from .workspace import filling_stream

    cupy = import_cupy()
    arch = driver.architecture(driver.compute_capability(device)) or "sm_90a"
    made = build("".join(_PROBE.format(size=size) for size in _SIZES), arch=arch, name="gpc_probe.cu")
    ctas = driver.multiprocessors(device)
    stream = filling_stream(device)
    with stream:
        found = cupy.zeros((len(_SIZES), _TURNS, 1 + ctas), dtype=np.uint32)
        for size, of_size in zip(_SIZES, found, strict=True):
            kernel = LoadedKernel(made.cubin_path or made.cubin, f"gpc_probe_{size}", cluster=(size, 1, 1))
            for turn in of_size:
                kernel(ctas // size * size, 32, (turn,), stream)
    stream.synchronize()
    rows = cupy.asnumpy(found, stream=stream)
    clusters = [
        cluster
        for size, of_size in zip(_SIZES, rows, strict=True)
        for turn in of_size
        for cluster in turn[1 : 1 + ctas // size * size].reshape(-1, size).tolist()
    ]
    return together(int(rows[0, 0, 0]), clusters)
