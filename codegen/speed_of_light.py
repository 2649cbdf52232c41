"""How fast a GEMM could be: a device's peak and ridge, a tile's intensity, waves, operand panels, the floor of a shape.

Knows devices and shapes; knows nothing of kernels beyond their tile, order and grid. A Device's figures are those of
its data sheet, so that a share of peak means the same everywhere; what a power limit leaves of them is measured.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .select import resident_ctas

if TYPE_CHECKING:
    from .division import Division
    from .gemm import Gemm


@dataclass(frozen=True)
class Device:
    """A GPU. Clocks in Hz; ``tensor_flops``: dense bf16 operations (a multiply and an add are two) of one tensor core
    in one clock; ``lanes``: fp32 multiply-adds of one SM in one clock; memory in bytes a second, L2 in bytes.
    """

    name: str
    sms: int
    tensor_clock: float
    tensor_cores: int
    tensor_flops: int
    clock: float
    lanes: int
    bytes_per_second: float
    l2_bytes: int

    def peak(self, kind: str = "bf16") -> float:
        """Operations a second: clock x SMs x tensor cores x operations, or with "fp32" clock x SMs x lanes x 2.

        >>> round(A100.peak() / 1e12), round(H100.peak() / 1e12), round(H100.peak("fp32") / 1e12)
        (312, 989, 67)
        """
        if kind == "fp32":
            return self.clock * self.sms * self.lanes * 2
        if kind in ("bf16", "f16"):
            return self.tensor_clock * self.sms * self.tensor_cores * self.tensor_flops
        raise ValueError(f"kind={kind!r}: must be 'bf16', 'f16' or 'fp32'")

    def ridge(self, kind: str = "bf16") -> float:
        """Operations a byte of memory at which compute and memory take the same time.

        >>> round(H100.ridge("fp32")), round(H100.ridge()), round(H200.ridge("fp32")), round(H200.ridge())
        (20, 295, 14, 206)
        """
        return self.peak(kind) / self.bytes_per_second


A100 = Device("A100", 108, 1.410e9, 4, 512, 1.410e9, 64, 2.039e12, 40 * 2**20)
"""A100 SXM 80 GB. NVIDIA A100 Tensor Core GPU Architecture, table 1: 108 SMs, 4 tensor cores of 256 multiply-adds, 1410 MHz,
312 TFLOP/s, 40 MB of L2; data sheet: 2,039 GB/s.
"""

H100 = Device("H100", 132, 1.830e9, 4, 1024, 1.980e9, 128, 3.35e12, 50 * 2**20)
"""H100 SXM. NVIDIA H100 Tensor Core GPU Architecture: 132 SMs, 4 tensor cores of 512 multiply-adds, 50 MB of L2; data sheet:
989 TFLOP/s of bf16, 67 of fp32, 3.35 TB/s. The two peaks are quoted at two clocks: 1830 MHz gives 989.4, 1980 MHz 66.9.
"""

H200 = dataclasses.replace(H100, name="H200", bytes_per_second=4.8e12)
"""H200 SXM: the H100's processor; data sheet: 4.8 TB/s."""

B200 = Device("B200", 148, 1.856e9, 4, 2048, 1.965e9, 128, 8.0e12, 126 * 2**20)
"""B200 of an HGX board. Data sheet: 2.25 PFLOP/s of dense bf16, 75 TFLOP/s of fp32, 8 TB/s. 148 SMs, 8192 operations a clock
(twice Hopper's), 126 MB of L2 and 1965 MHz as its driver tells; the clock that 2.25 PFLOP/s are quoted at follows.
"""

DEVICES = {device.name: device for device in (A100, H100, H200, B200)}


def device_named(name: str) -> Device:
    """A device by its name, as NVML gives it or short, or with "current" the one here. ValueError names those there are,
    LaunchError says that there is none here.

    >>> device_named("NVIDIA H200").name, device_named("h100").name
    ('H200', 'H100')
    """
    if name.lower() == "current":
        return current()
    for short, device in DEVICES.items():
        if short in name.upper():
            return device
    raise ValueError(f"device {name!r}: must be one of {', '.join(DEVICES)}, or current")


def current() -> Device:
    """CuPy's current device: a known one with the SMs that it has here; LaunchError without a GPU, ValueError for a
    device whose rates are not known.
    """
    from .launch import LaunchError, gpu_available, import_cupy

    usable, reason = gpu_available()
    if not usable:
        raise LaunchError(f"no usable GPU: {reason}")
    cupy = import_cupy()
    number = int(cupy.cuda.runtime.getDevice())
    name = cupy.cuda.runtime.getDeviceProperties(number)["name"]
    known = device_named(name.decode() if isinstance(name, bytes) else str(name))
    attributes = cupy.cuda.Device(number).attributes
    return dataclasses.replace(
        known, sms=int(attributes["MultiProcessorCount"]), l2_bytes=int(attributes["L2CacheSize"])
    )


def tile_intensity(m: int, n: int, element_bytes: int = 2) -> float:
    """Operations for each byte of A and B that a tile of m x n loads, whatever K.

    >>> round(tile_intensity(128, 256), 1)
    85.3
    """
    return 2 * m * n / (element_bytes * (m + n))


def memory_bound_flops(device: Device, m: int, n: int, element_bytes: int = 2) -> float:
    """Operations a second if every tile's operands came from memory and none from L2.

    >>> round(memory_bound_flops(H100, 128, 256) / 1e12), round(memory_bound_flops(H200, 128, 256) / 1e12)
    (286, 410)
    """
    return tile_intensity(m, n, element_bytes) * device.bytes_per_second


@dataclass(frozen=True)
class Waves:
    """Turns of a grid: ``count`` (tiles over SMs), the tiles ``last`` of the last turn, the share of all turns that is
    ``used``.
    """

    count: float
    last: int
    used: float


def waves(tiles: int, sms: int) -> Waves:
    """How ``tiles`` tiles fill ``sms`` SMs, or the CTAs that run at once.

    >>> waves(512, 132).last, round(waves(512, 132).count, 2), round(waves(512, 132).used, 2)
    (116, 3.88, 0.97)
    """
    if tiles < 1 or sms < 1:
        raise ValueError(f"tiles={tiles}, sms={sms}: each must be at least 1")
    turns = -(-tiles // sms)
    return Waves(tiles / sms, tiles - (turns - 1) * sms, tiles / (turns * sms))


def panels_per_window(tiles: Iterable[tuple[int, int]], window: int) -> float:
    """Rows of tiles (panels of A) plus columns (panels of B) that ``window`` consecutive tiles touch, averaged over all
    such windows: what CTAs that run together load. ``tiles``: (row, column) in the order in which they are taken.

    >>> row_by_row = [(row, column) for row in range(8) for column in range(8)]
    >>> round(panels_per_window(row_by_row, 8), 3)
    9.86
    """
    rows: Counter[int] = Counter()
    columns: Counter[int] = Counter()
    inside: deque[tuple[int, int]] = deque()
    total = found = 0
    for row, column in tiles:
        inside.append((row, column))
        rows[row] += 1
        columns[column] += 1
        if len(inside) > window:
            gone = inside.popleft()
            for counts, panel in ((rows, gone[0]), (columns, gone[1])):
                counts[panel] -= 1
                if not counts[panel]:
                    del counts[panel]
        if len(inside) == window:
            total += len(rows) + len(columns)
            found += 1
    if not found:
        if not inside:
            raise ValueError("tiles: there are none")
        return float(len(rows) + len(columns))  # fewer tiles than a window: they all run together
    return total / found


@dataclass(frozen=True)
class Floor:
    """The least time of a shape: ``compute_us`` at peak, ``memory_us`` with A and B read once and D written once; the
    larger is the bound, ``bound`` "tensor cores" or "memory".
    """

    compute_us: float
    memory_us: float

    @property
    def us(self) -> float:
        """Microseconds below which no kernel stays."""
        return max(self.compute_us, self.memory_us)

    @property
    def bound(self) -> str:
        """Which of the two it is."""
        return "tensor cores" if self.compute_us >= self.memory_us else "memory"


def require_device(arch: str, device: Device | None = None) -> Device:
    """The device that a kernel of ``arch`` is held against: the one given, or an H200 for sm_90a and a B200 for Blackwell, whose
    figures stand for sm_103a's too. Raises ValueError for one that runs no such kernel.

    >>> require_device("sm_100a").name, require_device("sm_90a", H100).name
    ('B200', 'H100')
    """
    fitting = (H200, H100) if arch.startswith("sm_90") else (B200,)
    if device is None:
        return fitting[0]
    if device.name not in [one.name for one in fitting]:
        raise ValueError(
            f"device {device.name}: runs no kernel of {arch}; one of {arch} is held against {' or '.join(one.name for one in fitting)}"
        )
    return device


def floor(device: Device, m: int, n: int, k: int, element_bytes: int = 2) -> Floor:
    """The least time of D (m, n) = A (m, k) B (n, k)^T in bf16 or f16.

    >>> floor(H200, 8192, 8192, 8192).bound, floor(H200, 16, 6144, 4096).bound
    ('tensor cores', 'memory')
    """
    if min(m, n, k) < 1:
        raise ValueError(f"m={m}, n={n}, k={k}: each must be at least 1")
    moved = element_bytes * (m * k + n * k + m * n)
    return Floor(2e6 * m * n * k / device.peak(), 1e6 * moved / device.bytes_per_second)


@dataclass(frozen=True)
class SpeedOfLight:
    """What bounds one GEMM on one device. ``tile_bound_tflops``: with every tile's operands from memory;
    ``quantised_us``: the compute floor in whole turns of whole tiles; ``panels``: of A and B, in each window of the CTAs
    that run at once.
    """

    device: str
    peak_tflops: float
    ridge: float
    intensity: float
    tile_intensity: float
    tile_bound_tflops: float
    floor: Floor
    waves: Waves
    quantised_us: float
    at_once: int
    panels: float
    order: str

    def lines(self) -> list[str]:
        """The report in words."""
        floor, waves = self.floor, self.waves
        return [
            f"{self.device}: {self.peak_tflops:.0f} TFLOP/s, ridge {self.ridge:.0f} flop/byte; this shape has "
            f"{self.intensity:.0f}, so {floor.bound} bound it.",
            f"At least {floor.us:.2f} us: {floor.compute_us:.2f} at peak, {floor.memory_us:.2f} to move A, B and D once.",
            f"A tile has {self.tile_intensity:.1f} flop/byte: at most {self.tile_bound_tflops:.0f} TFLOP/s if its operands came "
            "from memory; L2 must give the rest.",
            f"{waves.count:.2f} waves, {waves.last} tiles in the last: {waves.used:.1%} of the SMs' turns is used. In whole tiles, or "
            f"equal shares where K is divided, {self.quantised_us:.2f} us at peak.",
            f"Order {self.order}: {self.panels:.1f} panels of A and B for each window of {self.at_once} tiles.",
        ]

    def shares(self, us: float) -> dict[str, float]:
        """A measured time against the floor and the peak.

        >>> from stridewright import Gemm
        >>> light = speed_of_light(Gemm(8192, 8192, 8192), H200)
        >>> light.shares(light.floor.us)["of_floor"]
        1.0
        """
        return {"of_floor": self.floor.us / us, "of_peak": self.floor.compute_us / us}

    def record(self) -> dict[str, Any]:
        """The same for JSON."""
        made = dataclasses.asdict(self)
        made["floor"] = {**made["floor"], "us": self.floor.us, "bound": self.floor.bound}
        return made


def speed_of_light(gemm: Gemm, device: Device = H200) -> SpeedOfLight:
    """The report for a GEMM and its configuration on a device.

    >>> from stridewright import Gemm
    >>> speed_of_light(Gemm(4096, 4096, 4096), H200).floor.bound
    'tensor cores'
    """
    tile, schedule = gemm.config.tile, gemm.config.schedule
    division = gemm.division(device.sms)
    least = floor(device, gemm.m, gemm.n, gemm.k)
    # Blocks of K that the busiest cluster multiplies: whole tiles in turns, and its share of those that are divided.
    whole = division.blocks - division.shared_blocks
    busiest = -(-whole // division.clusters) * division.k_blocks
    busiest += -(-division.shared_blocks * division.k_blocks // division.clusters)
    per_block = 2e6 * tile.m * tile.n * tile.k / (device.peak() / device.sms)
    return SpeedOfLight(
        device=device.name,
        peak_tflops=device.peak() / 1e12,
        ridge=device.ridge(),
        intensity=2 * gemm.m * gemm.n * gemm.k / (2 * (gemm.m * gemm.k + gemm.n * gemm.k + gemm.m * gemm.n)),
        tile_intensity=tile_intensity(tile.m, tile.n),
        tile_bound_tflops=memory_bound_flops(device, tile.m, tile.n) / 1e12,
        floor=least,
        waves=waves(gemm.tiles(), resident_ctas(division.cluster, device.sms)),
        quantised_us=busiest * per_block,
        at_once=division.ctas,
        panels=_panels(gemm, division),
        order=schedule.order,
    )


def _panels(gemm: Gemm, division: Division) -> float:
    """Panels of tiles: a cluster of m x n has m panels of A and n of B."""
    from stridewright.kernels.orders import order_table, patch_of

    cluster, schedule = gemm.config.cluster, gemm.config.schedule
    patch = patch_of(cluster.m, cluster.n)
    table = order_table(schedule.order, division.rows, division.columns, schedule.group_m, patch).tolist()
    # Each average counts the one row or column of zeros too.
    a = panels_per_window([(row, 0) for row, _ in table], division.clusters) - 1
    b = panels_per_window([(0, column) for _, column in table], division.clusters) - 1
    return a * cluster.m + b * cluster.n
