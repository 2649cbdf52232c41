"""Faults planted in other people's Blackwell kernels: every fence, wait, arrival, commit, product, barrier and bulk copy is taken out, one at a time.

As test_planted_faults.py, in the lenient mode that these kernels need: what NVIDIA's compiler leaves out is not missed. Statements that may
go are listed with the reason; the list is exact.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from .test_blackwell_kernels import KERNELS
from .test_foreign_kernels import NUMPY_TYPES, PREPARE, operands, skip_unless_available
from .test_planted_faults import noticed

pytestmark = pytest.mark.slow

STATEMENT = re.compile(
    r"^[ \t]*(?:@!?%\w+ )?(?P<name>tcgen05\.(?:commit|wait|mma|alloc|dealloc)|fence\.proxy\.async|fence\.mbarrier_init|bar\.sync|barrier\.cta\.sync"
    r"|mbarrier\.arrive|mbarrier\.try_wait|cp\.async\.bulk\.(?:wait_group|commit_group|tensor)|barrier\.cluster\.(?:arrive|wait)"
    r"|clusterlaunchcontrol\.try_cancel)[^;\n]*;",
    re.MULTILINE,
)

SHAPE = (512, 256, 256)

# The DSL writes its fence after each initialisation, and once more before the cluster's barrier.
# In QuACK's kernel the barrier between its scheduler and its loading warp only slows the scheduler down; the one before the deallocation repeats what the
# epilogue's own barriers order. Lenient: barriers are initialised without a fence, an answer of the scheduler is read and overwritten without a proxy fence
# between, and loads of tensor memory are taken as done when their registers are read. A wait that a look at the barrier found unnecessary is not executed.
NOT_NEEDED: dict[str, Counter[str]] = {
    "cute-2-cta": Counter({"fence.mbarrier_init": 2}),
    "quack-launch-control": Counter(
        {
            "fence.mbarrier_init": 1,
            "bar.sync": 2,
            "fence.proxy.async": 4,
            "tcgen05.wait": 1,
            "mbarrier.try_wait": 1,
        }
    ),
}


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
    assert not run(given[0], given[1], d, edit=look, strict=False).races
    assert np.array_equal(d, want)
    assert len(sites) > 20
    missed = Counter(site["name"] for site in sites if not noticed(run, given, want, site, False))
    assert missed == NOT_NEEDED[name]
