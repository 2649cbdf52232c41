"""TensorMap: what cuTensorMapEncodeTiled is given, and everything that follows from it.

The dataclass holds the specification (innermost dimension first, as the driver has it). ``problems()`` is the
driver's verdict, ``warnings()`` what it lets pass, ``box_bytes`` what the mbarrier counts, ``landing()`` where in
shared memory each element of a box comes to lie. Which global byte goes where, out-of-bounds fill included, is in
``tensor_copy``; deriving a map from layouts is in ``tensor_map_derive``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from .dtypes import TMA_ENUMERATORS, data_type
from .errors import HardwareError, Problem, is_whole, whole
from .swizzle_modes import known_swizzle, swizzle_mode
from .tensor_map_rules import DESTINATION_ALIGNMENT, advice, driver_problems

if TYPE_CHECKING:
    from .. import Layout, SwizzledLayout

MAP_BYTES = 128  # sizeof(CUtensorMap), cuda.h
MAP_ALIGNMENT = 128  # alignof(CUtensorMap): 64 up to CUDA 12, 128 from 13 on; 128 serves both

_SPELLINGS = {
    "interleave": {"NONE": "none"},
    "l2_promotion": {"NONE": "none", "L2_64B": "64B", "L2_128B": "128B", "L2_256B": "256B"},
    "oob_fill": {"NONE": "zero", "none": "zero", "NAN_REQUEST_ZERO_FMA": "nan"},
}


@dataclass(frozen=True)
class TensorMap:
    """A tensor map's specification; every list is innermost dimension first.

    ``dtype`` a name of ``dtypes``; ``shape`` the tensor's sizes in elements; ``strides_bytes`` the strides of all
    dimensions but the first, in bytes; ``box`` what one copy moves, in elements; ``swizzle`` none, 32B, 64B, 128B,
    128B_atom_32B, 128B_atom_32B_flip_8B or 128B_atom_64B; ``element_strides`` 1..8 per dimension (None: all 1);
    ``interleave`` none, 16B or 32B; ``l2_promotion`` none, 64B, 128B or 256B; ``oob_fill`` zero or nan. The
    driver's own enumerators ("BFLOAT16", "128B_ATOM_32B", "L2_128B", "NAN_REQUEST_ZERO_FMA") are taken as well.
    Nothing is checked on construction: ask ``problems()``.

    >>> TensorMap(dtype="bf16", shape=(64, 128), strides_bytes=(256,), box=(64, 128), swizzle="128B").problems()
    []
    """

    dtype: str
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: str = "none"
    element_strides: tuple[int, ...] | None = None
    interleave: str = "none"
    l2_promotion: str = "none"
    oob_fill: str = "zero"
    arch: str = "sm_90a"

    def __post_init__(self) -> None:
        for field in ("shape", "strides_bytes", "box", "element_strides"):
            value = getattr(self, field)
            if value is None and field == "element_strides":
                continue
            items = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
            # What is no whole number stays as it is, for problems() to name.
            object.__setattr__(self, field, tuple(whole(field, x) if is_whole(x) else x for x in items))
        for field, spellings in _SPELLINGS.items():
            value = getattr(self, field)
            object.__setattr__(self, field, spellings.get(value, value) if isinstance(value, str) else value)
        if known_swizzle(self.swizzle):
            object.__setattr__(self, "swizzle", swizzle_mode(self.swizzle).name)
        if isinstance(self.dtype, str) and self.dtype in TMA_ENUMERATORS:
            object.__setattr__(self, "dtype", data_type(self.dtype).name)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def steps(self) -> tuple[int, ...]:
        """The element strides, written out."""
        return self.element_strides if self.element_strides is not None else (1,) * len(self.shape)

    def problems(self, address: int = 0) -> list[Problem]:
        """Every rule of cuTensorMapEncodeTiled this breaks, with field, value, rule and fix; [] if it would be
        accepted.

        ``address`` is the tensor's global address, or any number with the same low bits.

        >>> for p in TensorMap("f16", (100, 256), (200,), (64, 64), swizzle="128B").problems(): print(p)
        strides_bytes[0]=200: must be a multiple of 16 (cuda.h) (200 % 16 = 8); nearest 192, 208 (pad the pitch to 208 B = 104 elements)
        """
        return driver_problems(self, address)

    def warnings(self, store: bool = False) -> list[Problem]:
        """What the driver accepts and yet goes wrong or wastes; ``store`` says that the map is used to write.

        >>> for p in TensorMap("s8", (466, 64), (512,), (128, 64)).warnings(store=True): print(p)
        shape[0]=466: a store writes whole 16-byte chunks (466 % 16 = 2): bytes 466..479 of each row are overwritten (measured); store the tail with predicated st.global
        """
        return advice(self, store)

    def check(self, address: int = 0) -> TensorMap:
        """Itself. Raises HardwareError with all problems, one a line.

        >>> TensorMap("bf16", (64, 8), (128,), (64, 8)).check().rank
        2
        """
        found = self.problems(address)
        if found:
            raise HardwareError("no tensor map: " + "\n".join(str(problem) for problem in found))
        return self

    @property
    def counts(self) -> tuple[int, ...]:
        """Elements that a box holds along each dimension: ceil(box / element stride), box[0] undivided.

        With an interleave, dimension 0 counts pixels, which its element stride does skip, and a box holds one channel
        slice (dimension rank-2) whatever the box says. Measured on an H200.

        >>> TensorMap("bf16", (64, 64), (128,), (64, 9), element_strides=(1, 2)).counts
        (64, 5)
        """
        if not self.shape or not len(self.shape) == len(self.box) == len(self.steps):
            self.check()
        counts = [self.box[0]] + [-(-b // s) for b, s in zip(self.box[1:], self.steps[1:], strict=True)]
        if self.interleave != "none":
            counts[0] = -(-self.box[0] // self.steps[0])
            counts[self.rank - 2] = 1
        return tuple(counts)

    @property
    def row_bytes(self) -> int:
        """Bytes of one box row in shared memory."""
        if self.interleave != "none":
            return self.counts[0] * self.pixel_bytes
        return self.counts[0] * data_type(self.dtype).smem_bits // 8

    @property
    def pixel_bytes(self) -> int:
        """Bytes of a pixel, what dimension 0 of an interleaved map counts; 0 without an interleave.

        >>> TensorMap("u8", (8, 8, 2), (128, 1024), (4, 2, 1), interleave="16B").pixel_bytes
        16
        """
        return 0 if self.interleave == "none" else int(self.interleave.removesuffix("B"))

    @property
    def pitch(self) -> int:
        """Bytes from one box row to the next in shared memory: the swizzle span if there is one, else the row itself.

        >>> TensorMap("bf16", (64, 64), (128,), (32, 8), swizzle="128B").pitch
        128
        """
        span = swizzle_mode(self.swizzle).span
        return max(span, self.row_bytes) if self.interleave == "none" else self.row_bytes

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy adds to the mbarrier's transaction count; out-of-bounds elements count too.

        Of the padded 4- and 6-bit types the bytes of global memory count, not the gaps: so CUTLASS (TmaTransactionBytes of
        sm100_mma_warpspecialized.hpp: 4 or 6 bits an element), QuACK, DeepGEMM and TileLang (#2182) program the barrier of such
        loads. PTX does not say it, and it was not measured here.

        >>> TensorMap("bf16", (4096, 7), (8192,), (64, 128), swizzle="128B").box_bytes
        16384
        >>> TensorMap("e2m1_padded", (256, 64), (256,), (128, 8), "128B", arch="sm_100a").box_bytes
        512
        """
        kind = data_type(self.dtype)
        return self.row_bytes * prod(self.counts[1:]) * kind.bits // kind.smem_bits

    @property
    def smem_bytes(self) -> int:
        """Bytes of shared memory from the start of a box to its end, padding of short rows included."""
        return self.pitch * prod(self.counts[1:])

    def byte_of(self, coordinates: Sequence[int], address: int = 0) -> int:
        """The shared-memory byte at which the box element of those coordinates (elements, from the box's corner)
        begins.

        ``address`` is where the box was put, a multiple of 128 bytes. Raises HardwareError outside the box.

        >>> TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B").byte_of((0, 1), address=1024)
        1168
        """
        if len(coordinates) != self.rank or any(
            not 0 <= whole("a coordinate", c) < n for c, n in zip(coordinates, self.counts, strict=True)
        ):
            raise HardwareError(f"coordinates {tuple(coordinates)} are outside the box's {self.counts} elements")
        if address % DESTINATION_ALIGNMENT:
            raise HardwareError(f"box address {address}: must be a multiple of {DESTINATION_ALIGNMENT}")
        row, stride = 0, 1
        for c, n in zip(coordinates[1:], self.counts[1:], strict=True):
            row, stride = row + c * stride, stride * n
        width = self.pixel_bytes
        column = coordinates[0] * width if width else coordinates[0] * data_type(self.dtype).smem_bits // 8
        landed: int = swizzle_mode(self.swizzle).apply(address + row * self.pitch + column)
        return landed

    def landing(self) -> Layout | SwizzledLayout:
        """Where a box lies in shared memory: box coordinates -> element offset from a multiple of the pattern's repeat.

        A Layout, or a SwizzledLayout with a swizzle, in units of elements (bytes for the padded 4- and 6-bit types).
        Raises HardwareError for an interleaved map and for a swizzle that is no Swizzle(b, m, s).

        >>> print(TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B").landing().layout)
        (64,8):(1,64)
        """
        from .. import Layout, Swizzle, compose

        if self.interleave != "none":
            raise HardwareError(
                f"interleave {self.interleave}: one box element is a pixel of several values; no layout"
            )
        bits = data_type(self.dtype).smem_bits
        strides, stride = [1], self.pitch * 8 // bits
        for count in self.counts[1:]:
            strides.append(stride)
            stride *= count
        plain = Layout(self.counts, tuple(strides))
        mode = swizzle_mode(self.swizzle)
        if mode.bits == 0:
            return plain
        swizzled: SwizzledLayout = compose(Swizzle(*mode.element_parameters(bits)), plain)
        return swizzled

    def explain(self) -> str:
        """The map in words: dimensions, what a box moves, where it lands, what is wrong or surprising.

        >>> print(TensorMap("bf16", (4096, 7), (8192,), (64, 128), "128B").explain())
        bf16 tensor, innermost first: 4096 x 7, strides 2, 8192 bytes
        box 64 x 128: 16384 bytes on the mbarrier, 16384 bytes of shared memory, rows 128 bytes apart, swizzle 128B
        lands as S<3,3,3> o (64,128):(1,64) (element offset from a multiple of 1024 bytes)
        """

        def text(numbers: Sequence[int]) -> str:
            return " x ".join(map(str, numbers))

        found = self.problems()
        if found:
            return "no tensor map:\n" + "\n".join(f"  {problem}" for problem in found)
        unit = data_type(self.dtype).bits / 8 if self.interleave == "none" else self.pixel_bytes
        strides = ", ".join([f"{unit:g}", *map(str, self.strides_bytes)])
        lines = [
            f"{self.dtype} tensor, innermost first: {text(self.shape)}, strides {strides} bytes",
            f"box {text(self.counts)}: {self.box_bytes} bytes on the mbarrier, {self.smem_bytes} bytes of shared memory,"
            f" rows {self.pitch} bytes apart, swizzle {self.swizzle}",
        ]
        if self.interleave == "none" and not swizzle_mode(self.swizzle).flip_8_bytes:
            repeat = max(DESTINATION_ALIGNMENT, swizzle_mode(self.swizzle).repeat)
            lines.append(f"lands as {self.landing()} (element offset from a multiple of {repeat} bytes)")
        return "\n".join(lines + [f"  {problem}" for problem in self.warnings()])

    def with_arch(self, arch: str) -> TensorMap:
        """The same specification for another architecture."""
        return replace(self, arch=arch)

    @staticmethod
    def from_layouts(
        tensor: Layout,
        tile: Layout | SwizzledLayout,
        dtype: str,
        arch: str = "sm_90a",
        l2_promotion: str = "128B",
        oob_fill: str = "zero",
    ) -> TensorMap:
        """The map that copies a tile of ``tensor`` into the shared-memory layout ``tile``; see
        ``tensor_map_derive``."""
        from .tensor_map_derive import derive_tensor_map

        return derive_tensor_map(
            tensor, tile, dtype, arch=arch, l2_promotion=l2_promotion, oob_fill=oob_fill
        ).tensor_map


def delivery_problems(
    space: str, acquire_fence: bool = False, rewritten: bool = False, drained: bool = False, arch: str = "sm_90a"
) -> list[Problem]:
    """What is wrong with the way a tensor map reaches the kernel.

    ``space``: "param" (by value, const __grid_constant__), "const", "global" or "shared"; ``acquire_fence``: the kernel
    runs fence.proxy.tensormap::generic.acquire on it first; ``rewritten``: the kernel changes it (tensormap.replace);
    ``drained``: every copy that uses the old contents has completed before. Source: PTX ISA 9.1 section 9.7.13.4
    (proxies) and 9.7.9.27 (tensormap.replace).

    >>> delivery_problems("param")
    []
    >>> print(delivery_problems("global")[0].field)
    acquire_fence
    """
    found = []
    spaces = ("param", "const", "global", "shared")
    if space not in spaces:
        return [
            Problem("space", space, f"must be one of {', '.join(spaces)}", "param: const __grid_constant__ by value")
        ]
    if space == "shared":
        rule = f"a copy reads its map from param, const or global memory, not shared (PTX 9.7.9.25.5); on {arch} too"
        found.append(
            Problem("space", space, rule, "copy it to global memory with fence.proxy.tensormap, or pass it by value")
        )
    if space == "global" and not acquire_fence:
        rule = "a map in global memory is read through the tensormap proxy: without an acquire fence its bytes may be stale"
        fix = "pass it const __grid_constant__ by value, or emit fence.proxy.tensormap::generic.acquire.gpu"
        found.append(Problem("acquire_fence", False, rule, fix))
    if rewritten and space != "global":
        found.append(
            Problem("rewritten", True, f"a map in {space} memory cannot be rewritten", "keep it in global memory")
        )
    if rewritten and not drained:
        rule = "copies in flight may still read the old map"
        found.append(Problem("drained", False, rule, "wait for every copy that uses it before the update"))
    return found


def stage_problems(tensor_map: TensorMap, stage_bytes: int, stages: int, base: int = 0) -> list[Problem]:
    """What is wrong with a ring of ``stages`` boxes laid ``stage_bytes`` apart from shared address ``base``.

    The copy engine faults unless every base is a multiple of 128 (measured). A descriptor with base offset 0, and any
    layout that is to look alike in each stage, needs the swizzle's repeat.

    >>> [p.field for p in stage_problems(TensorMap("u8", (96, 1), (96,), (96, 1)), 96, 3)]
    ['stage_bytes']
    """
    found = [
        Problem(name, value, f"must be an int of at least {least}", f"use {least}")
        for name, value, least in (("stages", stages, 1), ("stage_bytes", stage_bytes, 0), ("base", base, 0))
        if not is_whole(value) or value < least
    ]
    if found:
        return found
    repeat = max(DESTINATION_ALIGNMENT, swizzle_mode(tensor_map.swizzle).repeat)
    bases = ", ".join(str(base + i * stage_bytes) for i in range(min(stages, 3)))
    for field, value in (("base", base), ("stage_bytes", stage_bytes if stages > 1 else 0)):
        if value % repeat:
            need = f"multiples of {DESTINATION_ALIGNMENT} (PTX)"
            if repeat > DESTINATION_ALIGNMENT:
                need = f"multiples of {repeat} so that the {tensor_map.swizzle} swizzle looks alike in each"
            rule = f"stage bases {bases} must be {need}"
            found.append(Problem(field, value, rule, f"pad to {-(-value // repeat) * repeat}"))
    if stage_bytes < tensor_map.smem_bytes and stages > 1:
        rule = f"is less than the {tensor_map.smem_bytes} bytes a box takes"
        found.append(
            Problem("stage_bytes", stage_bytes, rule, f"at least {-(-tensor_map.smem_bytes // repeat) * repeat}")
        )
    return found
