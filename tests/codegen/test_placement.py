"""Which SMs form a GPC, the numbers of clusters that belong there, and the memory in which they are taken."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewright import Gemm
from stridewright.codegen import build, driver, first_call, launch, placement, workspace
from stridewright.codegen.bind import OperandError
from stridewright.codegen.placement import any_chip, homes, together
from stridewright.kernels.config import GemmConfig
from stridewright.kernels.orders import order_table, patch_of

from .fake_devices import Array, Machine, Tensor, machine, replace_kernels

__all__ = ["machine"]

# ---- numbers of clusters -------------------------------------------------------------------------------------------------------

chips = st.lists(st.integers(min_value=0, max_value=8), min_size=1, max_size=150)


@given(gpcs=chips, clusters=st.integers(min_value=1, max_value=150))
@settings(max_examples=200, deadline=None)
def test_homes_are_numbers_of_clusters_dealt_out_evenly(gpcs: list[int], clusters: int) -> None:
    found = homes(gpcs, clusters)
    assert found.dtype == np.uint32
    assert found.shape == (len(gpcs),)
    counts = np.bincount(found, minlength=clusters)
    assert counts.size == clusters, "each is below the number of clusters"
    if clusters <= len(gpcs):
        assert counts.min() >= 1
        assert counts.max() - counts.min() <= 1
    else:
        assert counts.max() == 1


@given(gpcs=chips, clusters=st.integers(min_value=1, max_value=150))
@settings(max_examples=200, deadline=None)
def test_a_gpc_has_neighbouring_numbers(gpcs: list[int], clusters: int) -> None:
    """Between the numbers of one GPC none is another's, but for those at its two ends, of which an SM of the neighbour may have one too."""
    found = homes(gpcs, clusters).astype(int)
    ranges = []
    for gpc in set(gpcs):
        own = found[np.asarray(gpcs) == gpc]
        ranges.append((own.min(), own.max()))
        if clusters <= len(gpcs):
            assert set(own) == set(range(own.min(), own.max() + 1))
    for (low, high), (next_low, _) in itertools.pairwise(sorted(ranges)):
        assert low <= high <= next_low


def test_homes_need_a_cluster() -> None:
    with pytest.raises(ValueError, match="clusters=0: must be at least 1"):
        homes([0, 0], 0)


@given(
    sms=st.integers(min_value=1, max_value=12),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_sms_are_together_if_a_chain_of_clusters_says_so(sms: int, data: st.DataObject) -> None:
    cluster = st.lists(st.integers(min_value=0, max_value=sms - 1), min_size=1, max_size=4)
    clusters = data.draw(st.lists(cluster, max_size=8))
    near = np.eye(sms, dtype=bool)
    for one in clusters:
        near[np.ix_(one, one)] = True
    for _ in range(sms):
        near = near @ near
    found = together(sms, clusters)
    for first, second in itertools.product(range(sms), repeat=2):
        assert (found[first] == found[second]) == near[first, second]
    # Numbered as they first appear.
    assert list(dict.fromkeys(found)) == list(range(len(set(found))))


# ---- the probe -----------------------------------------------------------------------------------------------------------------


class Chip:
    """SMs with numbers that leave gaps, and the GPC of each; clusters of the probe run in one GPC, on SMs by chance."""

    identifiers = 40

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        random = np.random.default_rng(3)
        numbers = random.permutation(self.identifiers)[:34].tolist()
        self.gpcs = [numbers[:16], numbers[16:26], numbers[26:34]]
        self.random, self.launched, self.fails = random, [], ""  # type: ignore[var-annotated]
        chip = self

        class Kernel:
            def __init__(self, cubin: Any, name: str, cluster: tuple[int, int, int]) -> None:
                assert cubin == b"probe"
                assert name == f"gpc_probe_{cluster[0]}"
                self.size = cluster[0]

            def __call__(self, grid: int, block: int, args: tuple[Any, ...], stream: Any) -> None:
                if chip.fails:
                    raise launch.LaunchError(chip.fails)
                assert grid % self.size == 0
                chip.launched.append(self.size)
                (found,) = args
                found[0] = chip.identifiers
                for first in range(0, grid, self.size):
                    gpc = chip.gpcs[chip.random.integers(len(chip.gpcs))]
                    found[1 + first : 1 + first + self.size] = chip.random.choice(gpc, self.size, replace=False)

        class Stream:
            def __enter__(self) -> Stream:
                return self

            def __exit__(self, *error: object) -> None:
                pass

            def synchronize(self) -> None:
                pass

        cupy = SimpleNamespace(zeros=np.zeros, asnumpy=lambda array, stream: array)
        monkeypatch.setattr(launch, "import_cupy", lambda: cupy)
        monkeypatch.setattr(launch, "current_device", lambda: 0)
        monkeypatch.setattr(launch, "_told", set())
        monkeypatch.setattr(launch, "LoadedKernel", Kernel)
        monkeypatch.setattr(driver, "compute_capability", lambda device: (9, 0))
        monkeypatch.setattr(driver, "multiprocessors", lambda device: 34)
        monkeypatch.setattr(workspace, "filling_stream", lambda device: Stream())
        monkeypatch.setattr(build, "build", self.build)
        placement._gpcs_of.cache_clear()

    def build(self, source: str, arch: str, name: str) -> Any:
        assert arch == "sm_90a"
        self.source = source
        return SimpleNamespace(cubin_path=None, cubin=b"probe")


@pytest.fixture
def chip(monkeypatch: pytest.MonkeyPatch) -> Iterator[Chip]:
    yield Chip(monkeypatch)
    placement._gpcs_of.cache_clear()


def test_the_probe_finds_the_gpcs_and_is_asked_once(chip: Chip, caplog: pytest.LogCaptureFixture) -> None:
    found = placement.gpcs()
    assert len(found) == chip.identifiers
    assert len({found[sm] for gpc in chip.gpcs for sm in gpc}) == len(chip.gpcs)
    assert all(len({found[sm] for sm in gpc}) == 1 for gpc in chip.gpcs)
    launches = len(chip.launched)
    assert set(chip.launched) == set(range(2, 9))
    assert placement.gpcs() == found
    assert len(chip.launched) == launches
    assert not caplog.records


def test_a_probe_that_fails_is_told_once_and_a_guess_is_as_right(chip: Chip, caplog: pytest.LogCaptureFixture) -> None:
    chip.fails = "clusters are refused"
    with caplog.at_level(logging.WARNING):
        found = placement.gpcs()
        assert placement.gpcs() == found
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "SMs of device 0 form a GPC could not be found out (clusters are refused)" in record.getMessage()
    # No SM of any chip of the architecture reads beyond the table: a GH100 has 144 of them (NVIDIA H100 whitepaper).
    assert len(found) >= 144
    assert (homes(found, 132) < 132).all()


def test_an_sm_with_a_number_that_cannot_be_makes_the_probe_fail(chip: Chip, caplog: pytest.LogCaptureFixture) -> None:
    chip.gpcs[0][0] = chip.identifiers
    with caplog.at_level(logging.WARNING):
        assert placement.gpcs() == any_chip(144)
    assert len(caplog.records) == 1


def test_the_probes_source_compiles() -> None:
    source = "".join(placement._PROBE.format(size=size) for size in placement._SIZES)
    made = build.build(source, arch="sm_90a", name="gpc_probe.cu")
    for size in placement._SIZES:
        assert f".entry gpc_probe_{size}(" in made.ptx


# ---- what a launch gets --------------------------------------------------------------------------------------------------------

PLACED = GemmConfig().replace(tile_m=64, tile_n=64, consumers=1, stages=3, launch="placed")
SPLIT = GemmConfig().replace(tile_m=64, tile_n=64, consumers=1, stages=3, split_kind="split", parts=4)
A, B, OUT, WORK = (2**32 * place for place in range(1, 5))


@pytest.fixture
def kernels(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Kernels are numbers, tensor maps the addresses that they are of, and the table that was copied is kept."""

    replace_kernels(monkeypatch)
    monkeypatch.setattr(placement, "gpcs", lambda: [0, 1] * 66)
    first_call.forget()
    yield machine
    first_call.forget()


def pointers(machine: Machine, number: int = -1) -> list[int]:
    """The addresses of the table, partial sums and counters of a launch."""
    arguments = machine.launched[number].arguments
    return [int.from_bytes(one[:8], "little") for one in arguments[9:12]]


def operands(m: int, n: int, k: int) -> tuple[Array, Array, Array]:
    return Array(A, (m, k)), Array(B, (n, k)), Array(OUT, (m, n))


@pytest.mark.parametrize("order", ["grouped", "nested", "hilbert"])
@pytest.mark.parametrize("cluster", [(1, 1), (1, 2), (2, 1), (4, 1)])
def test_the_table_is_the_order_and_behind_it_the_homes(order: str, cluster: tuple[int, int]) -> None:
    config = PLACED.replace(order=order, cluster_m=cluster[0], cluster_n=cluster[1], stages=2)
    gemm = Gemm(1000, 1400, 64, config=config)
    division = gemm.division(132)
    table = gemm.order_table(gpcs=[0, 1] * 66, clusters=division.clusters)
    blocks = division.blocks if order != "grouped" else 0
    assert table.size == blocks + 132
    tiles = order_table(order, division.rows, division.columns, config.schedule.group_m, patch_of(*cluster)).tolist()
    assert table[:blocks].tolist() == [row | column << 16 for row, column in tiles[:blocks]]
    # The even SMs first, then the odd ones.
    assert table[blocks:].tolist() == [(sm // 2 + sm % 2 * 66) * division.clusters // 132 for sm in range(132)]
    assert division.counters == division.clusters + 1


def test_the_numbers_of_this_device_are_launched(kernels: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    tables: list[Any] = []
    copied = kernels.cupy.asarray

    def asarray(array: Any) -> Any:
        tables.append(array)
        return copied(array)

    monkeypatch.setattr(kernels.cupy, "asarray", asarray)
    gemm = Gemm(640, 640, 64, config=PLACED)
    gemm(*operands(640, 640, 64)[:2], out=operands(640, 640, 64)[2])
    (table,) = tables
    assert table.tolist() == homes([0, 1] * 66, 100).tolist()
    assert kernels.launched[-1].grid == 100
    assert pointers(kernels)[0] == 2**40 + 2**32 * kernels.copied
    assert pointers(kernels)[1] == 0


def test_numbers_and_shares_of_one_stream_lie_apart(kernels: Machine) -> None:
    """Numbers are taken while the kernel before still counts its shares, and the other way round."""
    spans = {}
    for name, config in (("placed", PLACED), ("split", SPLIT), ("again", PLACED.replace(order="nested"))):
        gemm = Gemm(640, 640, 4096, config=config)
        a, b, out = operands(640, 640, 4096)
        gemm(a, b, out=out)
        _, partials, counters = pointers(kernels)
        division = gemm.division(132)
        spans[name] = [(counters, counters + 4 * division.counters)]
        if division.partial_floats:
            spans[name].append((partials, partials + 4 * division.partial_floats))
    assert spans["placed"] == spans["again"], "kernels of a stream may share the numbers"
    every = sorted([*spans["placed"], *spans["split"]])
    assert len(every) == 3
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(every))
    assert [event for event in kernels.events if event[0] == "clear" and event[3] == 0] == [], "zero once and for all"


def test_two_streams_have_numbers_of_their_own(kernels: Machine) -> None:
    gemm = Gemm(640, 640, 64, config=PLACED)
    a, b, out = operands(640, 640, 64)
    found = set()
    for stream in (17, 18, 17):
        gemm(a, b, out=out, stream=stream)
        assert kernels.launched[-1].stream == stream
        found.add((stream, pointers(kernels)[2]))
    assert len(found) == 2
    (_, first), (_, second) = found
    assert abs(first - second) >= 4 * 101


@pytest.mark.parametrize("needed", [workspace.NUMBER_BYTES, workspace.NUMBER_BYTES + 4])
def test_more_numbers_than_a_stream_has_room_for_have_their_own(kernels: Machine, needed: int) -> None:
    shares = workspace.Sizes(0, 64, 1)
    numbers = workspace.Sizes(0, needed, 0, numbers=True)
    made = workspace.Workspaces()
    common, own = made.of(0, 17, shares), made.of(0, 17, numbers)
    if needed == workspace.NUMBER_BYTES:
        assert own.held is common.held
        assert common.counters + workspace.COUNTER_BYTES == own.counters
        # And the partial sums of the same stream begin behind them.
        sums = made.of(0, 17, workspace.Sizes(1 << 20, workspace.COUNTER_BYTES, 1))
        assert sums.partials == sums.address + workspace.COUNTER_BYTES + workspace.NUMBER_BYTES
    else:
        assert own.held is not common.held
        assert made.of(0, 17, numbers) is own
        assert made.bytes == needed


def test_a_bound_launch_has_its_own_numbers(kernels: Machine) -> None:
    gemm = Gemm(640, 640, 64, config=PLACED)
    a, b, out = operands(640, 640, 64)
    found = []
    for bound in (gemm.bind(a, b, out), gemm.bind(a, b, out)):
        for stream in (17, 18):
            bound(stream)
            found.append(pointers(kernels)[2])
    assert found[0] == found[1] != found[2] == found[3]


def test_numbers_in_the_callers_workspace_are_cleared_first(kernels: Machine) -> None:
    gemm = Gemm(640, 640, 64, config=PLACED)
    a, b, out = operands(640, 640, 64)
    assert gemm.workspace_bytes == 4 * 101
    gemm(a, b, out=out, workspace=Array(WORK, (4 * 101,), np.uint8), stream=17)
    assert ("clear", WORK, 4 * 101, 17) in kernels.events
    assert pointers(kernels)[2] == WORK
    with pytest.raises(OperandError, match=r"workspace: has 400 bytes, and this launch needs 404"):
        gemm(a, b, out=out, workspace=Array(WORK, (400,), np.uint8))


@pytest.mark.parametrize("config", [PLACED, SPLIT], ids=["placed", "split"])
@pytest.mark.parametrize("biased", [False, True])
def test_arrays_of_several_libraries_use_their_streams_memory(
    kernels: Machine, monkeypatch: pytest.MonkeyPatch, config: GemmConfig, biased: bool
) -> None:
    """Memory of the launch's own would go with it while the kernel still counts there, and come to a later launch, perhaps in another stream."""
    gemm = Gemm(640, 640, 64, config=config)
    a, b, out = Array(A, (640, 64)), Tensor(B, (640, 64)), Array(OUT, (640, 640))
    others = {"bias": Array(WORK, (640,), np.float32)} if biased else {}
    found = []
    for stream in (17, 18, 17, 18):
        gemm(a, b, out=out, stream=stream, **others)
        assert kernels.launched[-1].stream == stream
        found.append(pointers(kernels)[1:])
    assert found[:2] == found[2:]
    assert found[0] != found[1]
    assert all(any(one) for one in found)


def test_launches_that_are_measured_in_one_stream_share_their_numbers(kernels: Machine) -> None:
    from stridewright.codegen.measure import gemm_launches

    gemm = Gemm(640, 640, 64, config=PLACED)
    buffers: Any = [SimpleNamespace(a=a, b=b, d=d) for a, b, d in [operands(640, 640, 64)] * 3]
    for launched in gemm_launches(gemm, buffers, dependent=True):
        launched(17)
    assert len({pointers(kernels, number)[2] for number in range(3)}) == 1
    assert all(one.dependent for one in kernels.launched)


@pytest.mark.parametrize(
    ("changes", "recorded"),
    [({}, False), ({"order": "nested", "launch": "static"}, False), ({"launch": "static"}, True)],
    ids=str,
)
def test_the_next_process_asks_its_own_chip(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changes: dict[str, Any], recorded: bool
) -> None:
    """What a first call leaves for the next process holds no table, so that nothing is left of a kernel that needs one."""
    monkeypatch.setattr(first_call, "record_of", lambda made, sms: {})
    monkeypatch.setattr(first_call, "_path", lambda key, sms: tmp_path / "left")
    monkeypatch.setattr(driver, "multiprocessors", lambda device: 132)
    made = Gemm(640, 640, 64, config=PLACED.replace(**changes))
    made.__dict__["build"] = SimpleNamespace(cubin_path="there", cubin=b"")
    first_call._record(made)
    assert (tmp_path / "left").exists() == recorded
