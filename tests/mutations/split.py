"""The Hopper kernels whose tiles are shared among CTAs, faults of the hand-over of partial sums, and how one is run.

Beside values, races and deadlocks, a launch must leave its counters (and, where sums are added up in place, the sums) as zero as it found them: the
next launch starts from there.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from stridewright import Gemm
from stridewright.codegen.build import Build
from stridewright.codegen.emulator import DeadlockError, EmulationError, emulate_ptx
from stridewright.codegen.source import KERNEL_NAME, whole

from .judge import PATIENCE_SECONDS, Endless, Subject, Verdict, built, patience, problem_of
from .rules import Mutant, Rule, drop, exchange

SEEDS = 6


def _subject(name: str, shape: tuple[int, int, int], sms: int, **parameters: object) -> Subject:
    return Subject(name, tuple(parameters.items()), shape, sms)


SUBJECTS = {
    one.name: one
    for one in (
        _subject("split", (200, 72, 440), 9, tile_m=128, tile_n=64, stages=3, split_kind="split", parts=3, group_m=2),
        _subject("split-atomic", (136, 136, 440), 18, tile_m=64, tile_n=64, consumers=1, stages=3, split_kind="split", parts=2, reduce="atomic"),
        _subject("stream", (200, 136, 440), 5, tile_m=128, tile_n=64, stages=3, split_kind="stream"),
        _subject("stream-cluster", (300, 72, 440), 6, tile_m=128, tile_n=64, stages=3, split_kind="stream", reduce="atomic", cluster_m=2),
    )
}  # fmt: skip
"""Equal shares and shares that cut tiles anywhere; sums in places of their own and added up in place; alone and in clusters."""

EVERY = tuple(SUBJECTS)
ORDERED, ATOMIC = ("split", "stream"), ("split-atomic", "stream-cluster")
STREAM = ("stream", "stream-cluster")

_WRITTEN = "named_barrier_sync<CONSUMER_THREADS>(PARTIAL_SUMS_BARRIER);    // all of this CTA's sums are written"
_WAITED = "global_wait(counter(block), count);\n        named_barrier_sync<CONSUMER_THREADS>(PARTIAL_SUMS_BARRIER);"
_COUNTED = "global_count(counter(work.block));"
_LEFT = "if (global_count(came + 1) == count - 1) {"
_ADD = "atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
_POLL = "ld.acquire.gpu.global.u32"

SPLIT_RULES: tuple[Rule, ...] = (
    drop("no barrier before a CTA counts itself in", _WRITTEN, EVERY),
    exchange("a barrier of another number before a CTA counts itself in", _WRITTEN, "__syncwarp();", EVERY),
    exchange("a CTA counts itself in before its sums are written", _WRITTEN, "if (consumer == 0 && leads_warpgroup()) global_count(counter(work.block)); named_barrier_sync<CONSUMER_THREADS>(PARTIAL_SUMS_BARRIER); return;", ("split", "stream-cluster")),
    exchange("the count releases nothing", _COUNTED, "{ uint32 unused; asm volatile(\"atom.relaxed.gpu.global.add.u32 %0, [%1], 1;\" : \"=r\"(unused) : \"l\"(reinterpret_cast<uint64>(counter(work.block))) : \"memory\"); }", EVERY),
    exchange("a fence after a count that releases nothing", _COUNTED, "{ uint32 unused; asm volatile(\"atom.relaxed.gpu.global.add.u32 %0, [%1], 1;\" : \"=r\"(unused) : \"l\"(reinterpret_cast<uint64>(counter(work.block))) : \"memory\"); asm volatile(\"fence.acq_rel.gpu;\" ::: \"memory\"); }", ("split", "split-atomic")),
    exchange("counts that release to the block only", _ADD, "atom.acq_rel.cta.global.add.u32 %0, [%1], 1;", ("split", "stream")),
    exchange("relaxed counts", _ADD, "atom.relaxed.gpu.global.add.u32 %0, [%1], 1;", ("split", "stream-cluster")),
    exchange("counts by two", _ADD, "atom.acq_rel.gpu.global.add.u32 %0, [%1], 2;", EVERY),
    exchange("counts by none", _ADD, "atom.acq_rel.gpu.global.add.u32 %0, [%1], 0;", ("split", "stream")),
    exchange("counts with a wrap", _ADD, "atom.acq_rel.gpu.global.inc.u32 %0, [%1], 1;", ("split",)),
    exchange("relaxed wait", _POLL, "ld.relaxed.gpu.global.u32", EVERY),
    exchange("volatile wait", _POLL, "ld.volatile.global.u32", ("split", "stream")),
    exchange("a wait that acquires from the block only", _POLL, "ld.acquire.cta.global.u32", ("split", "stream")),
    exchange("waits for one CTA less", "while (seen < count);", "while (seen + 1 < count);", EVERY),
    exchange("waits for one CTA more", "while (seen < count);", "while (seen <= count);", EVERY),
    exchange("waits for the exact number of none", "while (seen < count);", "while (seen == 0);", EVERY),
    exchange("does not wait", "if (consumer == 0 && leads_warpgroup()) global_wait(counter(block), count);", "", EVERY),
    exchange("no barrier after the wait", _WAITED, "global_wait(counter(block), count);", EVERY),
    exchange("waits on the neighbour's counter", "counters + 2 * (block * CLUSTER_SIZE + rank)", "counters + 2 * (block * CLUSTER_SIZE + rank) + 1", ("split",)),
    exchange("one counter for all tiles", "counters + 2 * (block * CLUSTER_SIZE + rank)", "counters + 2 * rank", EVERY),
    exchange("one counter for a cluster", "counters + 2 * (block * CLUSTER_SIZE + rank)", "counters + 2 * block", ("stream-cluster",)),
    exchange("sums of a cluster in one place", "(uint64(number) * CLUSTER_SIZE + rank) * FRAGMENTS", "uint64(number) * CLUSTER_SIZE * FRAGMENTS", ("stream-cluster",)),
    exchange("beginnings and ends in one place", "2 * cluster + (beginning ? 1 : 0)", "2 * cluster", ("stream",)),
    exchange("places of neighbours overlap", "(uint64(number) * CLUSTER_SIZE + rank) * FRAGMENTS", "(uint64(number) * CLUSTER_SIZE + rank) * (FRAGMENTS / 2)", EVERY),
    exchange("consumers write over each other", "(consumer * STRIPS * (TILE_N / 8)) * 128 + threadIdx.x % 128;", "threadIdx.x % 128;", ("split", "stream", "stream-cluster")),
    exchange("octets half as far apart", "(strip * (TILE_N / 8) + octet) * 128;", "(strip * (TILE_N / 8) + octet) * 64;", EVERY),
    exchange("a share's last k-block is the next CTA's", "(uint64(k_block + 1) * clusters - 1) / total", "(uint64(k_block + 1) * clusters) / total", STREAM),
    exchange("one part too few is added", "part < count; ++part", "part + 1 < count; ++part", ORDERED),
    exchange("the first part is left out", "uint32 part = 0; part < count", "uint32 part = 1; part < count", ORDERED),
    exchange("the first part only", "fragments_of(first + part, block, part == 0)[fragment]", "fragments_of(first, block, true)[fragment]", ORDERED),
    exchange("parts are looked for at the own place", "fragments_of(first + part, block, part == 0)[fragment]", "fragments_of(cluster, block, part == 0)[fragment]", ORDERED),
    exchange("all CTAs store the first share of the tile", "(cluster - first) * CONSUMER_THREADS + thread", "thread", EVERY),
    exchange("every CTA stores the whole tile", "fragment += count * CONSUMER_THREADS", "fragment += CONSUMER_THREADS", ("split", "stream")),
    exchange("stores skip fragments", "fragment += count * CONSUMER_THREADS", "fragment += (count + 1) * CONSUMER_THREADS", EVERY),
    drop("sums are not set back", "*sums_of_all = {0, 0, 0, 0};", ATOMIC),
    exchange("sums are stored, not added", "global_add(&target->x, four[0], four[1], four[2], four[3]);", "*target = {four[0], four[1], four[2], four[3]};", ATOMIC),
    exchange("an addition takes a number twice", "four[0], four[1], four[2], four[3]);\n", "four[0], four[1], four[2], four[2]);\n", ATOMIC),
    exchange("counters are not set back", "came[0] = 0;", ";", EVERY),
    exchange("the second counter is not set back", "came[1] = 0;", ";", EVERY),
    exchange("the first to leave sets the counters back", _LEFT, "if (global_count(came + 1) == 0) {", EVERY),
    exchange("everybody sets the counters back", _LEFT, "{ global_count(came + 1);", EVERY),
    exchange("the last but one sets the counters back", _LEFT, "if (global_count(came + 1) == count - 2) {", EVERY),
    exchange("counters are set back before all have left", _LEFT, "came[0] = 0; if (global_count(came + 1) == count - 1) {", EVERY),
    exchange("the tile after the last is finished", "if (last != first) finish_block(last, cluster);", "if (last != first) finish_block(first, cluster);", ("stream",)),
    exchange("the second tile is not finished", "if (last != first) finish_block(last, cluster);", "", STREAM),
    exchange("the last k-block is another CTA's", "(end - 1) / scheduler.k_blocks", "end / scheduler.k_blocks", ("split",)),
    exchange("nobody adds the parts up", "if (SPLIT) partial_sums.finish();", "", EVERY),
)  # fmt: skip


@functools.lru_cache(maxsize=8)
def gemm_of(subject: Subject) -> Gemm:
    return Gemm(*subject.shape, config=subject.config)


@functools.lru_cache(maxsize=8)
def source_of(subject: Subject) -> str:
    """The kernel's files in full, before what its constants make dead is left out: rules speak of what is written there."""
    return whole(gemm_of(subject).derivation.config)


def mutants() -> list[Mutant]:
    """Every rule on every subject it is for."""
    return [Mutant(SUBJECTS[name], rule, "source") for rule in SPLIT_RULES for name in rule.on]


@dataclass(frozen=True)
class Outcome:
    """The emulator's verdict, and what the assembler complained of, which fails a strict build."""

    mutant: Mutant
    verdict: Verdict
    complaints: tuple[str, ...]

    @property
    def caught(self) -> bool:
        return self.verdict.kind != "survived" or bool(self.complaints)


def run(mutant: Mutant) -> Outcome:
    """Builds the mutant and asks the emulator. Raises CompileError for a mutant that is no program, which is a fault of the rule."""
    program = built(mutant.subject, mutant.rule.apply(source_of(mutant.subject)))
    return Outcome(mutant, judge(mutant.subject, program), program.complaints)


def judge(subject: Subject, program: Build, seeds: range = range(SEEDS)) -> Verdict:
    """Runs a program under seed after seed until one shows a fault; "survived" if none does."""
    a, b, exact = problem_of(subject)
    gemm = gemm_of(subject)
    for seed in seeds:
        d = np.full(exact.shape, np.nan, exact.dtype)
        arguments = gemm.emulator_arguments(a, b, d, subject.sms)
        sums, counters = arguments[-3:-1]
        cluster = (subject.config.cluster.m * subject.config.cluster.n, 1, 1)
        shared, threads = gemm.derivation.shared_bytes, (subject.config.threads, 1, 1)
        try:
            with patience(PATIENCE_SECONDS):
                result = emulate_ptx(
                    program.ptx,
                    KERNEL_NAME,
                    gemm.grid(subject.sms),
                    threads,
                    arguments,
                    cluster=cluster,
                    shared=shared,
                    seed=seed,
                )
        except Endless:
            return Verdict("endless", seed)
        except DeadlockError as error:
            return Verdict("deadlock", seed, str(error))
        except EmulationError as error:
            return Verdict("rule", seed, str(error))
        if result.races:
            return Verdict("race", seed, str(result.races[0]))
        if not np.array_equal(d.view(np.uint16), exact.view(np.uint16)):
            return Verdict("value", seed, f"{np.count_nonzero(d != exact)} of {exact.size} elements are wrong")
        if counters.any() or (subject.config.split.reduce == "atomic" and sums.any()):
            return Verdict("value", seed, "counters or sums are not zero again: the next launch would start from them")
    return Verdict("survived", seeds.stop - 1)
