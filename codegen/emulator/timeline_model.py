"""What things cost: the constants of the timeline's model of a Hopper chip, each with where it comes from.

Six were fitted to times measured on an H200 (`FITTED`), on half of the shapes only; the program benchmarks/timeline_hopper.py says on
which, and how far the model is off on others. The rest are documented, follow from what is documented, or are called assumptions.
"""

from __future__ import annotations

from dataclasses import dataclass

FITTED = (
    "launch_seconds",
    "load_latency",
    "l2_bytes_per_clock",
    "dram_bytes_per_second",
    "sustained_clock",
    "traffic_power",
)
"""The constants that were fitted."""


@dataclass(frozen=True)
class CostModel:
    """Constants of the chip. Clocks are of the SM unless the name says seconds; bytes per clock are of one SM."""

    launch_seconds: float = 1.95e-6
    """From one kernel's end to the next one's first instruction in a stream of kernels. Fitted."""
    load_latency: float = 1200.0
    """From a tensor copy's issue to its barrier, when nothing queues. L2 and DRAM are not told apart. Fitted."""
    l2_bytes_per_clock: float = 85.0
    """What L2 delivers to one SM while all SMs load. Fitted."""
    dram_bytes_per_second: float = 4.2e12
    """What DRAM delivers. An H200 has 4.8e12 (NVIDIA H200 data sheet). Fitted: begun at what decoding shapes reach, and not moved by the fit."""
    sustained_clock: float = 1.35e9
    """The SM clock at which a chip whose tensor cores never wait keeps to its 700 W. Fitted; see `clock`."""
    traffic_power: float = 0.0027
    """Power of one byte a clock into each SM, in units of what tensor cores that never wait draw. Fitted; see `clock`."""

    highest_clock: float = 1.98e9
    """The SM clock of a chip that has power to spare: clocks.max.sm of the H200 the measurements are from."""
    sms: int = 132
    """SMs of an H100 SXM and H200 (NVIDIA H100 Tensor Core GPU Architecture, table 1)."""
    shared_bytes_per_clock: float = 128.0
    """Shared memory: 32 banks of 4 bytes (CUDA C++ Programming Guide, compute capability 9.x)."""
    tensor_columns_per_clock: float = 2.0
    """Columns of 64 rows and 32 bytes of K that an SM multiplies in a clock: 989.4 dense bf16 TFLOPS at 1830 MHz with 132 SMs
    (H100 data sheet) are 4096 operations a clock, hence N / 2 clocks for m64nNk16."""
    mma_sync_share: float = 0.63
    """What mma.sync reaches of wgmma's rate on Hopper: 62.9 % on average (Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU
    Architecture, arXiv 2402.13499)."""
    cluster_latency: float = 180.0
    """From an arrival at a barrier in another block of the cluster to whoever waits: the SM-to-SM network's 180 clocks (the same paper)."""
    store_latency: float = 600.0
    """From the reading of shared memory to a store's completion in L2: some 265 clocks each way (the same paper: the 180 clocks are 32 % less than
    L2's), and a little."""
    barrier_latency: float = 20.0
    """From the last arrival at a barrier in shared memory to whoever waits. An assumption: less than a shared-memory load and its use, about 30 clocks."""
    umma_latency: float = 64.0
    """From the end of a tcgen05.mma to its commit's arrival. An assumption; nothing of Blackwell was measured here."""
    tensor_columns_moved: float = 1.0
    """Columns of 32 lanes of tensor memory that a warp loads or stores in a clock. An assumption."""
    wgmma_latency: float = 32.0
    """From the end of a wgmma's multiplies to a warpgroup that waits for it. An assumption; it is short against the multiplies of a slot."""
    instruction_clocks: float = 2.0
    """Clocks from one PTX instruction of a warp to its next: 1 is the issue rate of a scheduler, 4 the latency of a dependent one
    (CUDA C++ Programming Guide, arithmetic instructions since compute capability 7.x). An assumption, since PTX is not what runs."""
    issue_clocks: float = 4.0
    """Clocks for which the copy engine is busy with one copy's coordinates, whatever its size. An assumption."""

    def wgmma_clocks(self, n: int, from_registers: bool) -> float:
        """Clocks that a wgmma of 64 rows, `n` columns and 32 bytes of K takes: of its multiplies, or of reading its operands from shared memory
        (A: 64 rows of 32 bytes, B: `n` rows), whichever is longer.

        >>> CostModel().wgmma_clocks(256, False), CostModel().wgmma_clocks(64, False), CostModel().wgmma_clocks(8, False)
        (128.0, 32.0, 18.0)
        """
        read = (n + (0 if from_registers else 64)) * 32 / self.shared_bytes_per_clock
        return max(n / self.tensor_columns_per_clock, read)

    def umma_clocks(self, rows: int, n: int, group: int) -> float:
        """Clocks that a tcgen05.mma of `rows` rows in each block, `n` columns of D and 32 bytes of K takes: of its multiplies, or of reading its operands
        from shared memory, whichever is longer. 8192 operations a clock of an SM with 16-bit operands (2.25 dense PFLOPS, NVIDIA Blackwell
        data sheet), so 128 rows take n / 2 clocks alone and n / 2 as a pair with twice the rows; fewer rows take as long, an assumption. Not measured.

        >>> CostModel().umma_clocks(128, 256, 1), CostModel().umma_clocks(128, 256, 2), CostModel().umma_clocks(128, 64, 1)
        (128.0, 128.0, 48.0)
        """
        read = (rows + n / group) * 32 / self.shared_bytes_per_clock
        return max(n / 2, read)

    def mma_clocks(self, m: int, n: int, k: int, bits: int) -> float:
        """Clocks of the SM that one warp's mma.sync takes, if the other three tensor cores have as much to do.

        >>> round(CostModel().mma_clocks(16, 8, 16, 16), 2)
        1.59
        """
        return m / 64 * n / self.tensor_columns_per_clock * k * bits / 256 / self.mma_sync_share

    def clock(self, busy: float, traffic: float = 0.0) -> float:
        """The SM clock in Hz when tensor cores multiply for this share of the time and each SM loads `traffic` bytes a clock. Power is taken to grow
        with the third power of the clock (frequency times the square of voltage) and in proportion to what is done. An assumption that measured
        times agree with; the chip's power management is not documented.

        >>> CostModel().clock(1.0) == CostModel().sustained_clock, CostModel().clock(0.0) == CostModel().highest_clock
        (True, True)
        """
        work = busy + self.traffic_power * traffic
        if work <= (self.sustained_clock / self.highest_clock) ** 3:
            return self.highest_clock
        return float(self.sustained_clock / work ** (1 / 3))


@dataclass(frozen=True)
class Sharing:
    """What all SMs share, as one SM sees it: bytes per clock that it loads and that it stores."""

    load: float
    store: float


def sharing(model: CostModel, blocks: int, missing: float, clock: float) -> Sharing:
    """What one of `blocks` SMs gets of L2 and DRAM when this share of the bytes it loads comes from DRAM.

    >>> sharing(CostModel(l2_bytes_per_clock=80.0), 132, 0.0, 1.5e9).load
    80.0
    """
    active = min(blocks, model.sms)
    dram = model.dram_bytes_per_second / clock / active
    load = model.l2_bytes_per_clock if missing <= 0 else min(model.l2_bytes_per_clock, dram / missing)
    # Rounded, so that replays with all but the same share are one.
    return Sharing(round(load, 1), model.l2_bytes_per_clock)
