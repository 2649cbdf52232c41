"""Clusters that take their number when they start (``launch="placed"``), on the emulator: right wherever they run, and what they count zero again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen.build import build
from stridewright.codegen.emulator import DeadlockError, EmulationError, emulate_ptx
from stridewright.codegen.emulator.cta import Cta
from stridewright.codegen.emulator.progress import Progress
from stridewright.codegen.source import KERNEL_NAME, whole
from stridewright.kernels.config import GemmConfig
from stridewright.kernels.fusion import Fusion

SMS = 132
MOST_INSTRUCTIONS = 300_000

KERNELS: dict[str, dict[str, Any]] = {
    "one CTA": {"tile_m": 64, "tile_n": 64, "consumers": 1, "stages": 3},
    "two consumers": {"tile_m": 128, "tile_n": 64, "stages": 3},
    "three consumers": {"tile_m": 192, "tile_n": 64, "consumers": 3, "stages": 2},
    "1x2": {"tile_m": 64, "tile_n": 64, "consumers": 1, "stages": 3, "cluster_n": 2},
    "2x1": {"tile_m": 128, "tile_n": 64, "stages": 3, "cluster_m": 2},
    "4x1": {"tile_m": 64, "tile_n": 64, "consumers": 1, "stages": 2, "cluster_m": 4},
    "1x4 of three": {"tile_m": 192, "tile_n": 32, "consumers": 3, "stages": 2, "cluster_n": 4},
    "ping-pong": {"schedule_kind": "pingpong", "tile_m": 64, "tile_n": 64, "stages": 3},
    "ping-pong 2x1": {"schedule_kind": "pingpong", "tile_m": 64, "tile_n": 64, "stages": 3, "cluster_m": 2},
    "ping-pong 1x4": {"schedule_kind": "pingpong", "tile_m": 64, "tile_n": 32, "stages": 2, "cluster_n": 4},
    "swapped": {"tile_m": 64, "tile_n": 40, "consumers": 1, "stages": 4, "swap": True},
    "swapped 1x2": {"tile_m": 64, "tile_n": 40, "consumers": 1, "stages": 4, "swap": True, "cluster_n": 2},
    "direct": {"tile_m": 64, "tile_n": 64, "consumers": 1, "stages": 3, "store": "direct", "cluster_m": 2},
    "nested": {"tile_m": 64, "tile_n": 64, "consumers": 1, "stages": 3, "order": "nested", "group_m": 4},
    "nested 2x1": {"tile_m": 64, "tile_n": 64, "consumers": 1, "stages": 3, "order": "nested", "cluster_m": 2},
    "hilbert": {"tile_m": 64, "tile_n": 64, "consumers": 1, "stages": 3, "order": "hilbert"},
    "hilbert ping-pong": {"schedule_kind": "pingpong", "tile_m": 64, "tile_n": 64, "stages": 3, "order": "hilbert"},
    "serpentine": {"tile_m": 64, "tile_n": 64, "consumers": 1, "stages": 3, "order": "serpentine", "group_m": 3},
}

HOMES: dict[str, Callable[[int], int]] = {
    "in order": lambda cta: cta % SMS,
    "all on one": lambda cta: 0,
    "all on the last": lambda cta: SMS - 1,
    "reversed": lambda cta: SMS - 1 - cta % SMS,
    "anywhere": lambda cta: int(np.random.default_rng(cta).integers(0, SMS)),
    "two in turn": lambda cta: 7 + 90 * (cta % 2),
}
"""Which SM a CTA finds itself on, by its number in the grid."""
EVERY_TIME = ("all on one", "reversed", "anywhere")


def config_of(name: str, **more: Any) -> GemmConfig:
    return GemmConfig().replace(launch="placed", **{**KERNELS[name], **more})


@functools.cache
def gemm_of(name: str, shape: tuple[int, int, int]) -> Gemm:
    """A Gemm of which the tests may not change anything."""
    return Gemm(*shape, config=config_of(name))


def run_on(monkeypatch: pytest.MonkeyPatch, sm_of: Callable[[int], int]) -> None:
    """Every CTA runs where this says."""
    place = property(lambda cta: sm_of(cta.ctaid[0]), lambda cta, value: None)
    monkeypatch.setattr(Cta, "smid", place, raising=False)


def integers(rows: int, k: int, seed: int) -> np.ndarray[Any, Any]:
    """Whole numbers from -4 to 4: sums of up to 2^20 of their products are exact in float32."""
    return np.random.default_rng(seed).integers(-4, 5, (rows, k)).astype(ml_dtypes.bfloat16)


def product(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (a.astype(np.float64) @ b.astype(np.float64).T).astype(ml_dtypes.bfloat16)


def sms_for(gemm: Gemm, clusters: int) -> int:
    """SMs on which so many clusters run at the same time."""
    return next(sms for sms in range(1, SMS + 1) if gemm.division(sms).clusters == clusters)


class EndlessError(EmulationError):
    """A kernel that goes round for ever."""


def give_up(progress: Progress) -> None:
    """None of these kernels has a fifth of so many instructions."""
    if progress.instructions > MOST_INSTRUCTIONS:
        raise EndlessError(f"not at its end after {progress.instructions} instructions")


def launched(gemm: Gemm, sms: int, seed: int = 0, counters: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
    """What the counters are after a launch, which was right and had no race. ``counters``: those of an earlier one."""
    a, b = integers(gemm.m, gemm.k, seed + 1), integers(gemm.n, gemm.k, seed + 2)
    d = np.full((gemm.m, gemm.n), np.nan, dtype=ml_dtypes.bfloat16)
    arguments = gemm.emulator_arguments(a, b, d, sms)
    if counters is not None:
        arguments[-2] = counters
    cluster = (gemm.config.cluster.m * gemm.config.cluster.n, 1, 1)
    shared = gemm.derivation.shared_bytes
    result = emulate_ptx(
        gemm.ptx,
        KERNEL_NAME,
        gemm.grid(sms),
        gemm.config.threads,
        arguments,
        cluster,
        shared,
        seed=seed,
        progress=give_up,
    )
    assert result.instructions < MOST_INSTRUCTIONS / 5
    assert result.races == ()
    np.testing.assert_array_equal(d.view(np.uint16), product(a, b).view(np.uint16))
    found: np.ndarray[Any, Any] = arguments[-2]
    return found


# ---- right, wherever the clusters run ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(
    "homes", [one if one in EVERY_TIME else pytest.param(one, marks=pytest.mark.slow) for one in HOMES]
)
def test_every_kernel_is_right_wherever_its_clusters_run(
    monkeypatch: pytest.MonkeyPatch, name: str, homes: str
) -> None:
    run_on(monkeypatch, HOMES[homes])
    gemm = gemm_of(name, (200, 328, 72))
    counters = launched(gemm, sms_for(gemm, 3), seed=len(homes))
    assert counters.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("name", KERNELS)
def test_more_clusters_than_tiles_are_not_launched(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As many clusters as tiles, one tile each."""
    run_on(monkeypatch, HOMES["anywhere"])
    gemm = gemm_of(name, (200, 328, 72))
    division = gemm.division(SMS)
    assert division.clusters == division.blocks > 1
    assert not launched(gemm, SMS, seed=3).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_one_cluster_has_the_number_zero_on_every_sm(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for home in (0, 77, SMS - 1):
        run_on(monkeypatch, lambda cta, home=home: home)  # type: ignore[misc]
        gemm = gemm_of(name, (200, 328, 72))
        counters = launched(gemm, gemm.config.cluster.m * gemm.config.cluster.n)
        assert counters.tolist() == [0, 0]
        small = gemm_of(name, (8, 8, 8))
        assert launched(small, SMS).tolist() == [0, 0]


@pytest.mark.parametrize("name", ["one CTA", "2x1", "ping-pong 1x4", "nested"])
@pytest.mark.parametrize("seed", range(1, 5))
def test_no_order_of_events_disturbs_the_numbers(monkeypatch: pytest.MonkeyPatch, name: str, seed: int) -> None:
    run_on(monkeypatch, HOMES["all on one"])
    gemm = gemm_of(name, (330, 328, 136))
    assert launched(gemm, sms_for(gemm, 5), seed=seed).tolist() == [0] * 6


@pytest.mark.parametrize("shape", [(1, 8, 8), (65, 72, 64), (64, 520, 200), (700, 8, 264), (257, 136, 512)], ids=str)
@pytest.mark.parametrize("name", ["one CTA", "1x2", "2x1", "ping-pong", "nested"])
def test_ragged_sizes(monkeypatch: pytest.MonkeyPatch, name: str, shape: tuple[int, int, int]) -> None:
    run_on(monkeypatch, HOMES["two in turn"])
    for sms in (8, SMS):
        assert not launched(gemm_of(name, shape), sms, seed=sms).any()


def test_launches_that_follow_one_another_use_the_same_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several kernels with other numbers of clusters, as in one stream."""
    run_on(monkeypatch, HOMES["anywhere"])
    counters = np.zeros(64, dtype=np.uint32)
    for name, sms in (("one CTA", 9), ("one CTA", 9), ("2x1", 8), ("4x1", 4), ("nested", 12), ("ping-pong 1x4", 12)):
        assert launched(gemm_of(name, (330, 328, 136)), sms, seed=sms, counters=counters) is counters
        assert not counters.any(), name


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("one CTA", {"bias": 1, "activation": "relu"}),
        ("2x1", {"alpha": 2.0, "bias": 1}),
        ("ping-pong", {"alpha": 0.5, "c": 1, "beta": 2.0}),
        ("nested", {"bias": 1}),
        ("three consumers", {"bias": 1}),
        ("swapped", {"bias": 1, "alpha": 2.0}),
    ],
    ids=str,
)
def test_terms_beside_the_product(monkeypatch: pytest.MonkeyPatch, name: str, others: dict[str, Any]) -> None:
    run_on(monkeypatch, HOMES["all on one"])
    m, n, k = 330, 328, 136
    a, b = integers(m, k, 1), integers(n, k, 2)
    given: dict[str, Any] = {key: value for key, value in others.items() if key in ("alpha", "beta")}
    bias = integers(1, n, 3)[0].astype(np.float32) if "bias" in others else np.zeros(n, np.float32)
    c = integers(m, n, 4) if "c" in others else np.zeros((m, n), ml_dtypes.bfloat16)
    given |= {name: value for name, value in (("bias", bias), ("c", c)) if name in others}
    gemm = Gemm(m, n, k, config=config_of(name), activation=others.get("activation", "none"))
    emulation = gemm.emulate(a, b, sms=5, seed=2, **given)
    exact = others.get("alpha", 1.0) * (a.astype(np.float64) @ b.astype(np.float64).T)
    exact = exact + others.get("beta", 0.0) * c.astype(np.float64) + bias
    if "activation" in others:
        exact = np.maximum(exact, 0)
    assert emulation.races == ()
    np.testing.assert_array_equal(emulation.d.astype(np.float64), exact.astype(ml_dtypes.bfloat16).astype(np.float64))


@pytest.mark.parametrize(
    ("name", "asked", "changes"),
    [
        ("one CTA", {"a": "f16", "b": "f16", "d": "f16"}, {}),
        ("2x1", {"a": "f16", "b": "f16", "d": "f32"}, {"store": "direct"}),
        ("one CTA", {"a": "e4m3", "b": "e4m3"}, {"tile_k": 128}),
        ("ping-pong 1x4", {"a": "e4m3", "b": "e4m3"}, {"tile_k": 128}),
        ("one CTA", {"a_major": "mn"}, {}),
        ("2x1", {"a_major": "mn"}, {}),
        ("1x2", {"b_major": "mn"}, {}),
        ("ping-pong", {"b_major": "mn"}, {}),
    ],
    ids=str,
)
def test_other_types_and_majors(
    monkeypatch: pytest.MonkeyPatch, name: str, asked: dict[str, Any], changes: dict[str, Any]
) -> None:
    run_on(monkeypatch, HOMES["anywhere"])
    m, n, k = 328, 264, 272
    gemm = Gemm(m, n, k, config=config_of(name, **changes), **asked)
    types = {"f16": np.float16, "e4m3": ml_dtypes.float8_e4m3fn, "bf16": ml_dtypes.bfloat16}
    kind = types[asked.get("a", "bf16")]
    a, b = integers(m, k, 1).astype(kind), integers(n, k, 2).astype(kind)
    given = [np.asfortranarray(x) if asked.get(f"{which}_major") == "mn" else x for which, x in (("a", a), ("b", b))]
    emulation = gemm.emulate(*given, sms=5, seed=1)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert emulation.races == ()
    np.testing.assert_array_equal(emulation.d.astype(np.float64), exact.astype(emulation.d.dtype).astype(np.float64))


@pytest.mark.parametrize("name", ["one CTA", "2x1", "1x2", "nested", "ping-pong", "swapped"])
@pytest.mark.parametrize("sm", [0, 7, 131])
def test_a_cluster_begins_with_the_tiles_of_its_home(monkeypatch: pytest.MonkeyPatch, name: str, sm: int) -> None:
    """One cluster alone, on an SM whose home is the number of the last block: it computes this block, and no other."""
    run_on(monkeypatch, lambda cta: sm)
    gemm = gemm_of(name, (330, 328, 72))
    division, config = gemm.division(SMS), gemm.config
    a, b = integers(gemm.m, gemm.k, 5), integers(gemm.n, gemm.k, 6)
    d = np.full((gemm.m, gemm.n), np.nan, dtype=ml_dtypes.bfloat16)
    arguments = gemm.emulator_arguments(a, b, d, SMS)
    homes = np.full(SMS, 2**31, dtype=np.uint32)
    homes[sm] = division.blocks - 1
    table = arguments[9]
    arguments[9] = np.concatenate([table[: table.size - SMS], homes])
    size = config.cluster.m * config.cluster.n
    emulate_ptx(gemm.ptx, KERNEL_NAME, size, config.threads, arguments, size, gemm.derivation.shared_bytes)
    # Every order that is tried here ends in the last row and column of blocks.
    right = product(a, b).astype(np.float64)
    down, across = config.tile.m * config.cluster.m, config.tile.n * config.cluster.n
    found, expected = (x.T if config.schedule.swap else x for x in (d.astype(np.float64), right))
    first = down * (division.rows - 1), across * (division.columns - 1)
    np.testing.assert_array_equal(found[first[0] :, first[1] :], expected[first[0] :, first[1] :])
    assert np.isfinite(found).sum() == expected[first[0] :, first[1] :].size


@pytest.mark.parametrize("name", ["one CTA", "2x1", "nested", "hilbert"])
def test_the_header_says_what_to_pass(name: str) -> None:
    words = " ".join(line.removeprefix("//").strip() for line in gemm_of(name, (330, 328, 136)).source.splitlines())
    counted = "cluster" if name == "2x1" else "CTA"
    assert f"counters uint32, one for each {counted} and one more, zero at first and left so" in " ".join(words.split())
    assert "for each SM, %nsmid in all: the number" in " ".join(words.split())
    assert "read even before the grid before has ended" in " ".join(words.split())
    assert ("for each block of tiles in turn" in words) == (name in ("nested", "hilbert"))


@pytest.mark.parametrize(
    ("fusion", "changes"),
    [
        (Fusion(), {"tile_m": 192, "tile_n": 192, "consumers": 3, "cluster_n": 2, "store": "direct"}),
        (Fusion(), {"tile_m": 192, "tile_n": 192, "consumers": 3, "cluster_m": 2, "order": "row"}),
        (Fusion(), {"tile_m": 192, "tile_n": 64, "consumers": 3, "cluster_m": 2, "order": "row", "swap": True}),
        (Fusion(c="bf16", alpha=True), {"tile_m": 128, "tile_n": 128, "swap": True}),
        (
            Fusion(aux=True, bias="n", activation="relu"),
            {"tile_m": 128, "tile_n": 128, "swap": True, "order": "nested"},
        ),
        (
            Fusion(aux=True, bias="n", activation="relu"),
            {"schedule_kind": "pingpong", "tile_m": 64, "tile_n": 128, "swap": True, "cluster_n": 2, "order": "row"},
        ),
    ],
    ids=str,
)
def test_the_fullest_kernels_do_not_spill(fusion: Fusion, changes: dict[str, Any]) -> None:
    """With the largest tiles that the rules allow there; the assembler's log would make the build fail."""
    config = GemmConfig(fusion=fusion).replace(launch="placed", stages=2, **changes)
    assert config.problems() == []
    wider = config.replace(tile_n=config.tile.n + 16)
    assert wider.problems() or config.tile.n == 64
    assert build(whole(config), arch="sm_90a").ptx


# ---- faults --------------------------------------------------------------------------------------------------------------------

_TAKE = "while (global_exchange(taken + number, 1) != 0) number = number + 1 < clusters ? number + 1 : 0;"
_FREE = "for (uint32 i = 0; i <= clusters; ++i) global_set(taken + i, 0);"
_LAST = "if (global_count(taken + clusters) + 1 < clusters) return;"
_COUNT = "atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
_NUMBER = "shared_load_remote(shared + NUMBER_OFFSET, 0)"
_ONE, _TWO, _BOTH = ("one CTA",), ("2x1", "ping-pong 1x4"), ("one CTA", "2x1")


@dataclass(frozen=True)
class Fault:
    """``old`` is ``new`` in the source of these kernels, and so on with ``more``."""

    name: str
    old: str
    new: str
    on: tuple[str, ...]
    more: tuple[tuple[str, str], ...] = ()


FAULTS = (
    Fault("the number is the home, taken or not", _TAKE, "", _BOTH),
    Fault("no exchange: looked at and then set", _TAKE, "while (taken[number] != 0) number = number + 1 < clusters ? number + 1 : 0;\n    global_set(taken + number, 1);", _BOTH),
    Fault("a number that is taken is taken again", _TAKE, "global_exchange(taken + number, 1);", _BOTH),
    Fault("the next number, taken or not", _TAKE, "if (global_exchange(taken + number, 1) != 0) number = number + 1 < clusters ? number + 1 : 0;", _BOTH),
    Fault("no number after the last", "number + 1 < clusters ? number + 1 : 0", "number + 1", _BOTH),
    Fault("the last number is never tried", "number + 1 < clusters ? number + 1 : 0", "number + 2 < clusters ? number + 1 : 0", _BOTH),
    Fault("numbers of CTAs, not clusters", "gridDim.x / CLUSTER_SIZE;\n    uint32 number", "gridDim.x;\n    uint32 number", _TWO),
    Fault("nobody counts", "            count_claim(counters);\n", "", _BOTH),
    Fault("the numbers stay taken", _FREE, "", _BOTH),
    Fault("the count stays", _FREE, _FREE.replace("<=", "<"), _BOTH),
    Fault("the first number stays taken", _FREE, _FREE.replace("i = 0", "i = 1"), _BOTH),
    Fault("everybody frees the numbers", _LAST, "global_count(taken + clusters);", _BOTH),
    Fault("the first frees the numbers", _LAST, "if (global_count(taken + clusters) != 0) return;", _BOTH),
    Fault("the last but one frees the numbers", _LAST, "if (global_count(taken + clusters) + 2 < clusters) return;", _BOTH),
    Fault("nobody frees the numbers", _LAST, "if (global_count(taken + clusters) < clusters) return;", _BOTH),
    Fault("counts that order nothing, and plain stores", _COUNT, _COUNT.replace("acq_rel", "relaxed"), _BOTH, ((_FREE, _FREE.replace("global_set(taken + i, 0)", "taken[i] = 0")),)),
    Fault("the cluster's barrier releases nothing", "barrier.cluster.arrive.release.aligned;", "barrier.cluster.arrive.relaxed.aligned;", _TWO),
    Fault("no barrier of the cluster, only of the CTA", "if (CLUSTER_SIZE > 1 && PLACED) {\n        cluster_sync_ordered();", "if (CLUSTER_SIZE > 1 && PLACED) {\n        __syncthreads();", _TWO),
    Fault("every CTA reads its own number", _NUMBER, "shared_load(shared + NUMBER_OFFSET)", _TWO),
    Fault("the number of the last CTA", _NUMBER, "shared_load_remote(shared + NUMBER_OFFSET, CLUSTER_SIZE - 1)", _TWO),
    Fault("every CTA takes a number", "threadIdx.x == 32 && leads_cluster()", "threadIdx.x == 32", _TWO),
    Fault("two lanes of a warp take a number", "threadIdx.x == 32 && leads_cluster()", "threadIdx.x / 2 == 16 && leads_cluster()", _BOTH),
    Fault("the number is read before the barrier", "    if (threadIdx.x == 0) {\n        tensor_map_prefetch", "    scheduler.next = number_of_cluster(shared);\n    if (threadIdx.x == 0) {\n        tensor_map_prefetch", _ONE),
    Fault("the number is written after the barrier", "dependency_allow();\n\n    if (warpgroup == 0)", "dependency_allow();\n    if (claims_number()) shared_store(shared + NUMBER_OFFSET, scheduler.next);\n    if (warpgroup == 0)", _BOTH),
    Fault("the producer goes by the CTA's place in the grid", "if (PLACED) scheduler.next = number_of_cluster(shared);", "", _BOTH),
    Fault("the consumers go by the CTA's place in the grid", "if (PLACED) scheduler.next = warp_uniform(number_of_cluster(shared));", "", _BOTH),
    Fault("homes are looked for at the beginning of the table", "claim_number(ORDER == ORDER_TABLE ? order + scheduler.blocks : order, counters)", "claim_number(order, counters)", ("nested",)),
)  # fmt: skip
"""What the emulator reports, or the result or the counters show."""

SILENT = (
    Fault("counts that order nothing", _COUNT, _COUNT.replace("acq_rel", "relaxed"), _BOTH),
    Fault("no fence after the numbers are freed", "    global_fence();\n", "", _BOTH),
    Fault("the next grid is let in before the numbers are free", "if (!PLACED || !leads_cluster()) dependency_allow();", "dependency_allow();", _BOTH),
    Fault("the next grid is let in before the CTA has counted", "            count_claim(counters);\n            dependency_allow();", "            dependency_allow();\n            count_claim(counters);", _BOTH),
)  # fmt: skip
"""What shows only to the next grid, which the emulator does not run at the same time, or in an order of relaxed accesses that it does not try."""

NONE = Fault("none", "DEVICE bool claims_number()", "DEVICE bool claims_number()", ())


def planted(fault: Fault, name: str) -> Gemm:
    """The kernel with this fault."""
    config = config_of(name)
    gemm = Gemm(330, 328, 136, config=config)
    source = whole(config)
    for old, new in ((fault.old, fault.new), *fault.more):
        assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in the source"
        source = source.replace(old, new)
    # Not strict: the assembler would refuse some of these, and here the emulator is asked.
    gemm.__dict__["build"] = build(source, arch="sm_90a", strict=False)
    return gemm


def verdict(monkeypatch: pytest.MonkeyPatch, fault: Fault, name: str, seeds: int = 6) -> str:
    """What the emulator makes of a kernel with this fault, in several orders and places; "" for nothing."""
    gemm = planted(fault, name)
    sms = sms_for(gemm, 5)
    for seed in range(seeds):
        run_on(monkeypatch, HOMES[("anywhere", "all on one", "two in turn")[seed % 3]])
        try:
            if launched(gemm, sms, seed).any():
                return "counters"
        except DeadlockError:
            return "deadlock"
        except EmulationError as error:
            return f"error: {error}"
        except AssertionError as error:
            return "race" if "races" in str(error) else "value"
    return ""


def pairs(faults: tuple[Fault, ...]) -> list[Any]:
    """Each fault on each of its kernels: of these every night all, every time the last, which is a cluster where there is one."""
    return [
        pytest.param(fault, name, id=f"{fault.name}-{name}", marks=() if name == fault.on[-1] else pytest.mark.slow)
        for fault in faults
        for name in fault.on
    ]


@pytest.mark.parametrize(("fault", "name"), pairs(FAULTS))
def test_a_fault_is_found(monkeypatch: pytest.MonkeyPatch, fault: Fault, name: str) -> None:
    assert verdict(monkeypatch, fault, name), "not found"


@pytest.mark.parametrize("name", ["one CTA", "2x1", "ping-pong 1x4", "nested"])
def test_a_kernel_without_a_fault_raises_no_alarm(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert verdict(monkeypatch, NONE, name) == ""


def lets_the_next_grid_in_last(ptx: str) -> bool:
    """Whether a CTA that took a number counts it, frees all numbers if it is the last, and only then lets the next grid in; the other CTAs of
    a cluster, which have taken none, may do so before.
    """
    lines = [line.strip() for line in ptx.splitlines()]

    def places(instruction: str) -> list[int]:
        return [place for place, line in enumerate(lines) if line.startswith(instruction)]

    allows, counts = places("griddepcontrol.launch_dependents"), places("atom.acq_rel.gpu.global.add.u32")
    fences, frees = places("fence.acq_rel.gpu"), places("st.relaxed.gpu.global.u32")
    if len(counts) != 1 or len(fences) != 1 or not frees:
        return False
    *early, last = allows
    synced = places("barrier.cluster.wait")
    if len(early) != len(synced):
        return False
    # Behind a branch that CTA 0 does not take.
    guarded = [any(" bra " in line for line in lines[synced[0] : place] if line.startswith("@")) for place in early]
    return counts[0] < min(frees) <= max(frees) < fences[0] < last and all(guarded)


@pytest.mark.parametrize("name", ["one CTA", "2x1", "ping-pong 1x4", "nested"])
def test_the_next_grid_is_let_in_when_all_numbers_are_free(name: str) -> None:
    assert lets_the_next_grid_in_last(gemm_of(name, (330, 328, 136)).ptx)


@pytest.mark.parametrize(("fault", "name"), pairs(SILENT))
def test_what_only_another_grid_could_see_is_not_found(
    monkeypatch: pytest.MonkeyPatch, fault: Fault, name: str
) -> None:
    """Where the emulator comes to see it, the fault belongs to the others; what is known of the text shows it."""
    assert verdict(monkeypatch, fault, name) == ""
    assert not lets_the_next_grid_in_last(planted(fault, name).ptx)
