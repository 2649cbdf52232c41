"""Tensor maps made on the device: tensormap.replace, tensormap.cp_fenceproxy, the fence before their use, and finding them in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from stridewright.layout.hardware.errors import HardwareError
from stridewright.layout.hardware.tensor_map import MAP_BYTES
from stridewright.layout.hardware.tensor_map_replace import read_image, replaced

from .errors import EmulationError
from .ops_copy import each_thread
from .tensor_copy import BoundTensorMap
from .values import Value

if TYPE_CHECKING:
    from .cta import Cta
    from .gang import Gang
    from .launch import Launch


class DeviceTensorMaps:
    """The tensor maps in global memory: which ones this launch made, and which blocks have acquired them since."""

    def __init__(self) -> None:
        self.made: set[int] = set()
        self.acquired: set[tuple[int, tuple[int, int, int]]] = set()
        self._bound: dict[bytes, BoundTensorMap] = {}

    def changed(self, address: int) -> None:
        """A map was written: whoever uses it has to acquire it anew."""
        self.made.add(address)
        self.acquired = {one for one in self.acquired if one[0] != address}

    def find(self, launch: Launch, address: int, cta: Cta) -> BoundTensorMap:
        """The map that a tensor copy names. Raises EmulationError if there is none, or if a fence is missing."""
        if address % MAP_BYTES:
            raise EmulationError(f"tensor map at {address:#x}: must be a multiple of {MAP_BYTES} bytes")
        if launch.strict and address in self.made and (address, cta.ctaid) not in self.acquired:
            raise EmulationError(
                f"the tensor map at {address:#x} was made by this kernel and is used by block {cta.ctaid} without "
                "fence.proxy.tensormap::generic.acquire on it"
            )
        image = launch.memory.read(address, MAP_BYTES).tobytes()
        bound = self._bound.get(image)
        if bound is None:
            try:
                bound = self._bound[image] = BoundTensorMap(*_map_first(image, launch))
            except HardwareError as error:
                raise EmulationError(f"the 128 bytes at {address:#x} are no tensor map: {error}") from error
        return bound


def _map_first(image: bytes, launch: Launch) -> tuple[Any, Any, int]:
    tensor_map, address = read_image(image)
    return tensor_map, launch.memory, address


def tensor_map_replace(g: Gang, m: Any, shared: bool, address: Value, field: str, ordinal: int, value: Value) -> None:
    """tensormap.replace.tile: one field of the 128 bytes."""
    cta, launch = g.cta, g.cta.launch
    for lane, (at, new) in each_thread(g, m, address, value):
        memory: Any = cta.shared if shared else launch.memory
        _aligned(at)
        try:
            image = replaced(memory.read(at, MAP_BYTES).tobytes(), field, new, ordinal)
        except HardwareError as error:
            raise EmulationError(f"tensormap.replace: {error}") from error
        memory.write(at, np.frombuffer(image, np.uint8))
        if not shared:
            launch.device_maps.changed(at)
        elif cta.races is not None:
            one = np.zeros(g.width, np.bool_)
            one[lane] = True
            cta.races.generic(g, one, cta, at, MAP_BYTES, True)


def tensor_map_copy(g: Gang, m: Any, target: Value, source: Value) -> None:
    """tensormap.cp_fenceproxy: the warp copies one map from shared to global memory and releases it."""
    cta, launch = g.cta, g.cta.launch
    for to, at in {pair for _, pair in each_thread(g, m, target, source)}:
        _aligned(to)
        _aligned(at)
        if cta.races is not None:
            cta.races.generic(g, m, cta, at, MAP_BYTES, False)
        launch.memory.write(to, cta.shared.read(at, MAP_BYTES))
        if launch.global_races is not None:
            launch.global_races.lanes(g, m, to, MAP_BYTES, g.at, True)
        launch.device_maps.changed(to)


def tensor_map_acquire(g: Gang, m: Any, address: Value) -> None:
    """fence.proxy.tensormap::generic.acquire: the map there may be used by the block's tensor copies."""
    for _, (at,) in each_thread(g, m, address):
        g.cta.launch.device_maps.acquired.add((at, g.cta.ctaid))


def _aligned(address: int) -> None:
    if address % MAP_BYTES:
        raise EmulationError(f"tensor map at {address:#x}: must be a multiple of {MAP_BYTES} bytes")
