"""Mutants that nothing catches, each with the reason: because they compute the same by the rules of the machine, or because a check is missing.

Names of PTX mutants count the copies that NVRTC 13 makes of an unrolled loop.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

_FENCE_AFTER_BARRIER = (
    "The proxy fence may stand on either side of the barrier, as long as it is on the path from the generic writes to the copy's read within "
    "one CTA (Lustig et al., 'Mixed-proxy extensions for the NVIDIA PTX memory consistency model', ISCA 2022; PTX ISA, 'Causality order': a "
    "proxy fence along the base causality path). Here the storing thread executes it between the barrier and its copy."
)
_LATER_FENCE = (
    "Only the first multiply of a sum needs wgmma.fence: between later ones no other instruction touches the accumulators, and multiplies of "
    "the same shape on the same accumulators are ordered by themselves (PTX ISA, 'wgmma.fence')."
)
_CLAIM = (
    "Registers are claimed for speed: a kernel assembled without the claim has fewer registers a thread, and the assembler, who counts them, "
    "refuses it (C7508, spills) if they are too few. No result depends on it."
)

EQUIVALENT: dict[str, str] = {
    "cluster/source/slices of B of the other CTA": (
        "The CTAs of a column exchange which slice of B they fetch; source and destination agree, so every slice arrives at its place."
    ),
    "*/source/a turn is passed on after the last tile": (
        "One arrival more at a named barrier that nobody waits at any more: bar.arrive waits for nothing, and barriers end with the CTA."
    ),
    "cooperative/source/tile alignment left out": (
        "Without static shared memory the dynamic part begins at shared address 1024 on this architecture (the 1024 bytes below it are the "
        "system's), so that rounding up to a multiple of 1024 changes nothing; Triton's kernels rely on the same."
    ),
    "*/source/proxy fence after the barrier, by the storing warp only": _FENCE_AFTER_BARRIER,
    "*/ptx/later fence.proxy.async #*": _FENCE_AFTER_BARRIER,
    "*/ptx/drop wgmma.fence #[47]": _LATER_FENCE,
    "*/ptx/later wgmma.fence #[47]": _LATER_FENCE,
    "*/ptx/drop setmaxnreg #1": _CLAIM,
    "swapped/ptx/drop setmaxnreg #2": (
        "With one consumer warpgroup the launch gives every thread all the registers it can name, so the claim does not need what the producer "
        "releases: 2 x 128 threads x 240 registers are fewer than 65,536."
    ),
    "*/ptx/later mbarrier.arrive.expect_tx #*": (
        "The bytes may land before they are expected: the transaction count is negative for a while, and the phase cannot complete before the "
        "arrival that comes with the expectation (PTX ISA, 'Tracking asynchronous operations by the mbarrier object')."
    ),
    "*/ptx/later cp.async.bulk.tensor.2d.shared::cluster #[246]": (
        "In the unrolled loop B's load into one slot is issued after the wait for the next slot. That slot is released by consumers who wait "
        "for slots filled before, never for this one (the ring has three), so the load comes later and nothing else changes."
    ),
    "cooperative/ptx/later mbarrier.init #6": (
        "An empty barrier is initialised behind the fence. Only threads of this CTA ever use it, which the barrier of the CTA orders after it; "
        "the fence is for what the copy engine or another CTA uses."
    ),
    "cluster/ptx/later mbarrier.init #6": (
        "The empty barrier of the ring's last slot is initialised behind the fence. A peer first arrives there after it has waited for the second "
        "filling of slot 0, which its producer asked for after this CTA's consumers had released slot 0 to it; they had waited for barriers that "
        "the initialising thread armed. That chain of arrivals and waits orders the two."
    ),
    "swapped/ptx/later mbarrier.init #6": "As for the cooperative kernel: only this CTA's threads use the empty barriers, after __syncthreads.",
}
"""Patterns of names -> why the mutant is no fault."""

GAPS: dict[str, str] = {
    "*/source/a grid does not wait for the one before it": (
        "A launch is emulated alone: that the grid before it may still be running, under programmatic dependent launch, cannot be said, so a "
        "missing griddepcontrol.wait is not seen. (test_gemm_faults looks for it in the PTX, before the loads.)"
    ),
    "*/source/a grid waits for the one before it after its first loads": (
        "As above: no grid runs before the one that is emulated, so that loads before griddepcontrol.wait read nothing that is still written."
    ),
}
"""Patterns of names -> the fault, and the check that the emulator lacks."""

SURVIVORS = {**EQUIVALENT, **GAPS}


def reason(name: str) -> str | None:
    """Why a mutant with this name may survive; None if it must be caught."""
    return next((why for pattern, why in SURVIVORS.items() if fnmatchcase(name, pattern)), None)
