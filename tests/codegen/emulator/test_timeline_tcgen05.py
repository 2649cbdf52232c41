"""The timeline of tcgen05 kernels: complete, in order, and as long as the stated rates say."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stridewright.codegen.emulator.timeline import CostModel, Timeline

from .test_tcgen05 import run_pair, run_pipeline


def timeline(tiles: int, depth: int, **changes: str) -> Timeline:
    found = run_pipeline(tiles, depth, timeline=True, **changes)[1].timeline
    assert isinstance(found, Timeline)
    return found


@pytest.mark.parametrize("accumulators", ["1", "2"])
def test_every_stream_comes_to_its_end(accumulators: str) -> None:
    found = timeline(3, 4, ACCUMULATORS=accumulators)
    assert found.unfinished == 0
    products = [span for span in found.spans if span.track == "tensor core"]
    assert len(products) == 3 * 4 * 4
    assert all(span.end - span.start == pytest.approx(CostModel().umma_clocks(128, 64, 1)) for span in products)
    assert sum(found.busy.values()) == pytest.approx(sum(span.end - span.start for span in products))
    ordered = sorted(products, key=lambda span: span.start)
    assert all(one.end <= two.start for one, two in pairwise(ordered))


def test_a_pair_multiplies_on_both_tensor_cores() -> None:
    found = run_pair(timeline=True)[1].timeline
    assert isinstance(found, Timeline)
    assert found.unfinished == 0
    one, two = (
        [(s.start, s.end) for s in found.spans if s.track == "tensor core" and s.block == block] for block in (0, 1)
    )
    assert one == two
    assert len(one) == 4


def test_a_commit_arrives_when_the_products_before_it_are_done() -> None:
    """Two slots and two tiles of two slots: each commit's phase ends umma_latency after the last product that it covers."""
    found = timeline(2, 2)
    ends = sorted(phase.end for phase in found.phases if phase.what == "commit")
    products = sorted(span.end for span in found.spans if span.track == "tensor core")
    latency = CostModel().umma_latency
    # Four products a slot; a tile's last slot and its accumulator are committed together.
    wanted = [products[number] + latency for number in (3, 7, 7, 11, 15, 15)]
    assert ends == pytest.approx(wanted)
