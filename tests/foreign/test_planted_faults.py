"""Faults planted in other people's PTX: every fence, wait, arrival, commit, barrier and bulk copy is taken out, one at a time.

The emulator must notice: by a wrong value, a race, a deadlock or a broken rule, under at most four seeds. Statements that may go are listed
with the reason; the list is exact, so that a check that stops working shows as much as one that turns wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stridewright.codegen.emulator import EmulationError

from .test_foreign_kernels import KERNELS, NUMPY_TYPES, PREPARE, Run, operands, skip_unless_available

pytestmark = pytest.mark.slow

STATEMENT = re.compile(
    r"^[ \t]*(?:@!?%\w+ )?(?P<name>wgmma\.(?:fence|commit_group|wait_group)|fence\.proxy\.async|fence\.mbarrier_init|bar\.sync|mbarrier\.arrive"
    r"|cp\.async\.bulk\.(?:wait_group|commit_group|tensor)|barrier\.cluster\.(?:arrive|wait))[^;\n]*;",
    re.MULTILINE,
)

SHAPE = (256, 256, 512)
SEEDS = range(4)

# A wgmma.fence inside the loop over K: only wgmma of one shape has touched the accumulators since the fence before the loop (PTX ISA, wgmma.fence).
# A pipeline's initialisation ends with a fence and a bar.sync; where another pipeline's follows, the later pair serves both, and the later pair itself
# guards barriers that only ping-pong uses.
NOT_NEEDED: dict[str, Counter[str]] = {
    "quack-cooperative": Counter({"wgmma.fence": 1}),
    "cute-cluster-2x1": Counter({"fence.mbarrier_init": 1, "bar.sync": 1}),
}


def noticed(run: Run, given: tuple[NDArray[Any], ...], want: NDArray[Any], site: re.Match[str], strict: bool) -> bool:
    def without(ptx: str) -> str:
        return ptx[: site.start()] + " " * len(site.group()) + ptx[site.end() :]

    a, b, unwritten = given
    for seed in SEEDS:
        d = unwritten.copy(order="K")
        try:
            result = run(a, b, d, edit=without, strict=strict, seed=seed)
        except EmulationError:
            return True
        if result.races or not np.array_equal(d, want):
            return True
    return False


@pytest.mark.parametrize("name", NOT_NEEDED)
def test_every_statement_that_is_needed_is_missed(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    kernel = KERNELS[name]
    skip_unless_available(kernel.package)
    run = PREPARE[kernel.package](kernel, tmp_path_factory.mktemp(name))
    m, n, k = SHAPE
    random = np.random.default_rng(1)
    given = operands(kernel, random.integers(-4, 5, (m, k)), random.integers(-4, 5, (n, k)))
    exact = (given[0].astype(np.float64) @ given[1].astype(np.float64).T).astype(np.float32)
    want = exact.astype(NUMPY_TYPES[kernel.d_dtype])
    sites: list[re.Match[str]] = []

    def look(ptx: str) -> str:
        sites.extend(STATEMENT.finditer(ptx))
        return ptx

    d = given[2].copy(order="K")
    assert not run(given[0], given[1], d, edit=look, strict=kernel.strict).races
    assert np.array_equal(d, want)
    assert len(sites) > 10
    missed = Counter(site["name"] for site in sites if not noticed(run, given, want, site, kernel.strict))
    assert missed == NOT_NEEDED[name]
