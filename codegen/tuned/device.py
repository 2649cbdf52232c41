"""Which device results belong to: its name, its driver, its multiprocessors. Nothing here needs CuPy."""

from __future__ import annotations

import ctypes
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from stridewright.codegen import driver

_MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, cuda.h
_VERSION_FILE = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class TuningDevice:
    """A device as results are filed under: name as the driver gives it, driver version, architecture, multiprocessors."""

    name: str
    driver: str
    arch: str
    sms: int


def current_device() -> TuningDevice | None:
    """CuPy's current device, the first one where CuPy is not in use, or None without a GPU that kernels exist for. Never
    raises; asks the driver once for each device.
    """
    cupy = sys.modules.get("cupy")
    number = 0
    if cupy is not None:
        try:
            number = int(cupy.cuda.runtime.getDevice())
        except Exception:  # CuPy without a device has errors of its own classes
            return None
    return _device(number)


@lru_cache(maxsize=64)
def _device(number: int) -> TuningDevice | None:
    try:
        if driver.device_count() <= number:
            return None
        arch = driver.architecture(driver.compute_capability(number))
        if arch is None:
            return None
        handle = driver.cuda_driver()
        identity, sms = ctypes.c_int(), ctypes.c_int()
        name = ctypes.create_string_buffer(256)
        driver.check(handle.cuDeviceGet(ctypes.byref(identity), number), "cuDeviceGet")
        driver.check(handle.cuDeviceGetName(name, len(name), identity), "cuDeviceGetName")
        driver.check(handle.cuDeviceGetAttribute(ctypes.byref(sms), _MULTIPROCESSORS, identity), "cuDeviceGetAttribute")
        return TuningDevice(name.value.decode(), _driver_version(), arch, sms.value)
    except driver.DriverError:
        return None


def _driver_version() -> str:
    """The driver's own version where the kernel module tells it ("580.65.06"), else the CUDA version that it supports."""
    try:
        found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", _VERSION_FILE.read_text(encoding="utf-8"))
        if found:
            return found[1]
    except OSError:
        pass
    version = driver.driver_version()
    return f"cuda-{version // 1000}.{version % 1000 // 10}"
