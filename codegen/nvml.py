"""Clocks, power and temperature of a GPU through NVML, the library behind nvidia-smi, by ctypes.

Reads only; no function here changes a setting. Source: NVML API Reference, "Device Queries" (nvml.h).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_CLOCK_SM, _CLOCK_MEMORY = 1, 2  # nvmlClockType_t
_TEMPERATURE_GPU = 0  # nvmlTemperatureSensors_t
_TEXT = 96

# nvmlClocksEventReasons: bits that say why the clock is not at its most.
_REASONS = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "thermal", 0x40: "hardware thermal", 0x80: "power brake"}


class NvmlError(RuntimeError):
    """NVML is missing or refused a call; the message says which."""


@functools.cache
def library() -> ctypes.CDLL:
    """NVML, initialised. Raises NvmlError where it is not installed."""
    try:
        handle = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        raise NvmlError("NVML is not installed (libnvidia-ml.so.1 was not found; it comes with the driver)") from error
    _check(handle.nvmlInit_v2(), "nvmlInit_v2")
    return handle


def _check(status: int, call: str) -> None:
    if status:
        raise NvmlError(f"{call} failed with status {status}")


@dataclass(frozen=True)
class Gpu:
    """One GPU of NVML. Each reading is None where this GPU or its virtual machine does not give it."""

    handle: Any
    library: Any

    def _number(self, call: str, kind: Callable[..., Any], *given: int) -> int | None:
        function = getattr(self.library, call, None)
        if function is None:
            return None
        value = kind()
        status = function(self.handle, *given, ctypes.byref(value))
        return None if status else int(value.value)

    def _text(self, call: str, *first: Any) -> str | None:
        function = getattr(self.library, call, None)
        text = ctypes.create_string_buffer(_TEXT)
        if function is None or function(*first, text, ctypes.c_uint(_TEXT)):
            return None
        return text.value.decode()

    def clock_mhz(self) -> int | None:
        """The clock of the multiprocessors now."""
        return self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, _CLOCK_SM)

    def watts(self) -> float | None:
        """Power drawn, an average over about a second on recent GPUs."""
        milliwatts = self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint)
        return None if milliwatts is None else milliwatts / 1000

    def joules(self) -> float | None:
        """Energy used since the driver was loaded: its difference over a time is the mean power."""
        millijoules = self._number("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong)
        return None if millijoules is None else millijoules / 1000

    def held_back_by(self) -> tuple[str, ...] | None:
        """Why the clock is lower than it could be: "power cap", "thermal" and so on."""
        bits = self._number("nvmlDeviceGetCurrentClocksEventReasons", ctypes.c_ulonglong)
        if bits is None:
            bits = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong)
        return None if bits is None else tuple(name for bit, name in _REASONS.items() if bits & bit)

    def describe(self) -> dict[str, Any]:
        """What a record says of the GPU: name, driver, clocks in MHz, power in watts, temperature in Celsius."""
        limit = self._number("nvmlDeviceGetEnforcedPowerLimit", ctypes.c_uint)
        return {
            "name": self._text("nvmlDeviceGetName", self.handle),
            "driver_version": self._text("nvmlSystemGetDriverVersion"),
            "clock_mhz": self.clock_mhz(),
            "most_clock_mhz": self._number("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, _CLOCK_SM),
            "memory_clock_mhz": self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, _CLOCK_MEMORY),
            "watts": self.watts(),
            "most_watts": None if limit is None else limit / 1000,
            "temperature": self._number("nvmlDeviceGetTemperature", ctypes.c_uint, _TEMPERATURE_GPU),
        }


def current_gpu() -> Gpu:
    """The GPU that is CuPy's current device. Raises NvmlError where NVML is missing or does not know it."""
    from .launch import import_cupy

    runtime = import_cupy().cuda.runtime
    bus = str(runtime.deviceGetPCIBusId(runtime.getDevice()))
    handle = ctypes.c_void_p()
    # By address on the bus: NVML counts all GPUs, CUDA those in CUDA_VISIBLE_DEVICES.
    _check(
        library().nvmlDeviceGetHandleByPciBusId_v2(bus.encode(), ctypes.byref(handle)),
        f"nvmlDeviceGetHandleByPciBusId_v2({bus})",
    )
    return Gpu(handle, library())


def gpu_or_none() -> Gpu | None:
    """``current_gpu()``, or None where there is no NVML: a measurement goes without clocks then."""
    try:
        return current_gpu()
    except NvmlError:
        return None
