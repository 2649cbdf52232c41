"""The shadow memory against a byte-by-byte record of every access."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewright.codegen.emulator.shadow import Actor, Shadow

BASE, SIZE, AGENTS = 0x400, 256, 3


def actor(agent: int, epoch: int, *clock: int) -> Actor:
    """An actor by plain numbers."""
    return Actor(agent, epoch, np.array(clock, np.uint32))


class Record:
    """Last write and last reads of every byte, as dictionaries."""

    def __init__(self) -> None:
        self.writes: dict[int, tuple[int, int, int]] = {}
        self.reads: dict[tuple[int, int], tuple[int, int]] = {}

    def access(self, who: Actor, touched: list[int], where: int, writing: bool) -> set[tuple[str, int, int]]:
        """(kind, other agent, byte) of every conflict."""
        found = set()
        for byte in touched:
            if byte in self.writes:
                agent, epoch, _ = self.writes[byte]
                if epoch > who.clock[agent]:
                    found.add(("write after write" if writing else "read after write", agent, byte))
            if writing:
                for (at, agent), (epoch, _) in self.reads.items():
                    if at == byte and epoch > who.clock[agent]:
                        found.add(("write after read", agent, byte))
        for byte in touched:
            if writing:
                self.writes[byte] = (who.agent, who.epoch, where)
            else:
                self.reads[byte, who.agent] = (who.epoch, where)
        return found


@st.composite
def accesses(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Accesses of three agents whose epochs grow and whose clocks are arbitrary."""
    result = []
    epochs = [1] * AGENTS
    for where in range(draw(st.integers(1, 25))):
        agent = draw(st.integers(0, AGENTS - 1))
        epochs[agent] += draw(st.integers(0, 1))
        clock = [draw(st.integers(0, e)) for e in epochs]
        if draw(st.booleans()):
            clock[agent] = epochs[agent]
        size = draw(st.sampled_from([1, 2, 4, 8, 16, 32, 64]))
        grain = draw(st.sampled_from([g for g in (1, 4, 16) if g <= size]))
        starts = draw(st.lists(st.integers(0, (SIZE - size) // grain), min_size=1, max_size=4))
        lanes, writing = draw(st.booleans()), draw(st.booleans())
        result.append(
            (actor(agent, epochs[agent], *clock), [BASE + s * grain for s in starts], size, where, lanes, writing)
        )
    return result


@settings(max_examples=200, deadline=None)
@given(accesses())
def test_conflicts_are_found_exactly_where_a_byte_by_byte_record_finds_them(steps: list[tuple[Any, ...]]) -> None:
    shadow, record = Shadow(BASE, SIZE), Record()
    for who, starts, size, where, lanes, writing in steps:
        groups = [starts] if lanes else [[start] for start in starts]
        for group in groups:
            touched = sorted({start + i for start in group for i in range(size)})
            want = record.access(who, touched, where, writing)
            if lanes:
                act = shadow.write_lanes if writing else shadow.read_lanes
                got = act(who, np.array(group), size, where)
            else:
                ranges = [(group[0], group[0] + size)]
                got = shadow.write(who, ranges, where) if writing else shadow.read(who, ranges, where)
            assert {c.kind for c in got} == {kind for kind, _, _ in want}
            for conflict in got:
                bytes_of_first = range(conflict.low, conflict.high)
                assert {(conflict.kind, conflict.other_agent, byte) for byte in bytes_of_first} <= want
            assert {a for k, a, _ in want if k == "write after read"} == {
                c.other_agent for c in got if c.kind == "write after read"
            }


def test_a_conflict_names_both_places_and_the_epoch_that_is_missing() -> None:
    shadow = Shadow(0, 1024)
    assert shadow.read(actor(1, 7, 0, 7), [(256, 512)], where=80) == []
    (found,) = shadow.write(actor(0, 3, 3, 6), [(0, 1024)], where=40)
    assert (found.kind, found.low, found.high, found.count) == ("write after read", 256, 272, 16)
    assert (found.agent, found.where, found.other_agent, found.other_epoch, found.other_where) == (0, 40, 1, 7, 80)


def test_two_unfinished_operations_of_one_asynchronous_agent_conflict() -> None:
    shadow = Shadow(0, 64)
    assert shadow.write(actor(0, 1, 0), [(0, 64)], 1) == []
    assert [c.kind for c in shadow.write(actor(0, 2, 0), [(0, 64)], 2)] == ["write after write"]
    assert shadow.write(actor(0, 3, 2), [(0, 64)], 3) == []


def test_neighbouring_small_accesses_of_two_agents_do_not_conflict() -> None:
    shadow = Shadow(0, 64)
    for size in (16, 8, 4, 2, 1):
        shadow.forget([(0, 64)])
        assert shadow.write_lanes(actor(0, 1, 1, 0), np.array([0]), size, 0) == []
        assert shadow.write_lanes(actor(1, 1, 0, 1), np.array([size]), size, 0) == []
        assert shadow.granule == size
        assert len(shadow.write_lanes(actor(1, 1, 0, 1), np.array([0]), size, 0)) == 1


def test_splitting_granules_keeps_what_was_recorded() -> None:
    shadow = Shadow(0, 64)
    shadow.write(actor(0, 5, 5, 0), [(0, 64)], 1)
    shadow.read(actor(0, 6, 6, 0), [(16, 32)], 2)
    kinds = {c.kind: (c.low, c.high) for c in shadow.write(actor(1, 1, 0, 1), [(18, 20)], 3)}
    assert kinds == {"write after write": (18, 20), "write after read": (18, 20)}


def test_chunks_are_their_bytes_whatever_the_granule() -> None:
    chunks = np.array([1, 3])
    for size in (16, 4, 1):
        shadow = Shadow(0, 64)
        shadow.write_lanes(actor(0, 1, 1, 0), np.array([16, 32 + size]), size, 1)
        for _ in range(2):
            (found,) = shadow.read_chunks(actor(1, 1, 0, 1), chunks, 2)
            assert (found.kind, found.low, found.other_where) == ("read after write", 16, 1)
        assert shadow.read_chunks(actor(1, 1, 0, 1), np.array([0]), 2) == []
        assert len(shadow.write(actor(0, 2, 2, 0), [(63, 64)], 3)) == 1


@pytest.mark.parametrize(
    ("agent", "epoch", "where"), [(1 << 15, 1, 0), (-1, 1, 0), (0, 1 << 30, 0), (0, 1, 1 << 18), (0, 1, -1)]
)
def test_numbers_that_do_not_fit_are_errors(agent: int, epoch: int, where: int) -> None:
    with pytest.raises(ValueError, match="must be non-negative and below"):
        Shadow(0, 64).write(actor(agent, epoch, 1), [(0, 16)], where)


def test_the_largest_numbers_come_back_in_a_report() -> None:
    shadow = Shadow(0, 64)
    clock = np.zeros(1 << 15, np.uint32)
    last = Actor((1 << 15) - 1, (1 << 30) - 1, clock)
    shadow.write(last, [(0, 64)], (1 << 18) - 1)
    (found,) = shadow.read(Actor(0, 1, clock), [(0, 64)], 3)
    assert (found.other_agent, found.other_epoch, found.other_where) == (last.agent, last.epoch, (1 << 18) - 1)
    shadow = Shadow(0, 64)
    shadow.read(last, [(0, 64)], (1 << 18) - 1)
    (found,) = shadow.write(Actor(0, 1, clock), [(0, 64)], 3)
    assert (found.other_agent, found.other_epoch, found.other_where) == (last.agent, last.epoch, (1 << 18) - 1)


def test_masked_lanes_and_empty_ranges_are_no_accesses() -> None:
    shadow = Shadow(0, 64)
    everywhere = np.array([0, 1 << 20])
    assert shadow.write_lanes(actor(0, 1, 1, 0), everywhere, 4, 0, np.array([True, False])) == []
    assert shadow.write_lanes(actor(1, 1, 0, 1), everywhere, 4, 0, np.array([False, False])) == []
    assert shadow.write(actor(1, 1, 0, 1), [(0, 0)], 0) == []
    assert len(shadow.read_rows(actor(1, 1, 0, 1), np.array([0, 32]), 8, 0)) == 1


def test_addresses_outside_and_clocks_too_short_are_errors() -> None:
    shadow = Shadow(1024, 64)
    for low, high in ((1000, 1030), (1080, 1096)):
        with pytest.raises(ValueError, match="outside this shadow"):
            shadow.read(actor(0, 1, 1), [(low, high)], 0)
    shadow.write(actor(3, 1, 0, 0, 0, 1), [(1024, 1040)], 0)
    with pytest.raises(ValueError, match="a clock of 2 agents, but agent 3"):
        shadow.read(actor(0, 1, 1, 0), [(1024, 1040)], 0)
    with pytest.raises(ValueError, match="granule 3"):
        Shadow(0, 64, 3)


@pytest.mark.parametrize("agents", [3, 40])
def test_strong_and_weak_accesses_of_few_and_of_many_agents_against_a_record_of_each(agents: int) -> None:
    """Two accesses conflict if one writes, they are not ordered, and not both are strong. A byte's earlier weak writes hide behind the last."""
    for seed in range(12):
        random = np.random.default_rng(seed)
        size = 8192
        shadow = Shadow(0, size)
        last: dict[tuple[int, bool, bool, int], int] = {}
        weak: dict[int, tuple[int, int]] = {}
        epochs = [1] * agents
        for where in range(1, 120):
            agent = int(random.integers(agents))
            epochs[agent] += int(random.integers(2))
            clock = np.array([random.integers(0, epoch + 1) for epoch in epochs], np.uint32)
            writing, strong = bool(random.integers(2)), bool(random.integers(2))
            starts = 4 * random.integers(0, 40, 3) + 4096 * random.integers(0, 2, 3)
            touched = sorted({int(start) + i for start in starts for i in range(4)})
            want = set()
            for byte in touched:
                if byte in weak and weak[byte][1] > clock[weak[byte][0]]:
                    want.add(weak[byte][0])
                for other in range(agents):
                    for wrote in (True, False):
                        # Weak writes are in `weak`; reads conflict with writes only, strong accesses with weak ones only.
                        kinds = [firm for firm in (True, False) if not (firm and strong) and (firm or not wrote)]
                        if writing or wrote:
                            want |= {other for firm in kinds if last.get((byte, wrote, firm, other), 0) > clock[other]}
            act = shadow.write_lanes if writing else shadow.read_lanes
            found = act(Actor(agent, epochs[agent], clock), starts, 4, where, None, strong)
            assert {one.other_agent for one in found} <= want
            assert bool(found) == bool(want)
            for byte in touched:
                if writing and not strong:
                    weak[byte] = (agent, epochs[agent])
                else:
                    last[byte, writing, strong, agent] = epochs[agent]
