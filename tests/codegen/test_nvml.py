"""NVML: readings come in their units, what is refused is None, and a machine without it is told so."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from stridewright.codegen import nvml

NOT_SUPPORTED = 3


def number(value: int, kind: Any) -> Any:
    """A call of NVML's that writes a number through its last argument."""

    def call(handle: Any, *given: Any) -> int:
        ctypes.cast(given[-1], ctypes.POINTER(kind)).contents.value = value
        return 0

    return call


def text(value: bytes) -> Any:
    def call(*given: Any) -> int:
        buffer, size = given[-2], given[-1].value
        assert size > len(value)
        buffer.value = value
        return 0

    return call


def gpu(**calls: Any) -> nvml.Gpu:
    return nvml.Gpu(ctypes.c_void_p(1), SimpleNamespace(**calls))


def test_readings_have_their_units() -> None:
    one = gpu(
        nvmlDeviceGetClockInfo=number(1980, ctypes.c_uint),
        nvmlDeviceGetPowerUsage=number(698_500, ctypes.c_uint),
        nvmlDeviceGetTotalEnergyConsumption=number(2**40, ctypes.c_ulonglong),
        nvmlDeviceGetCurrentClocksEventReasons=number(0x4 | 0x20, ctypes.c_ulonglong),
    )
    assert one.clock_mhz() == 1980
    assert one.watts() == 698.5
    assert one.joules() == 2**40 / 1000
    assert one.held_back_by() == ("power cap", "thermal")


def test_what_a_gpu_does_not_tell_is_none() -> None:
    one = gpu(nvmlDeviceGetPowerUsage=lambda *given: NOT_SUPPORTED)
    assert one.watts() is None
    assert one.clock_mhz() is None
    assert one.joules() is None
    assert one.held_back_by() is None


def test_older_drivers_call_the_reasons_throttling() -> None:
    one = gpu(nvmlDeviceGetCurrentClocksThrottleReasons=number(0x80, ctypes.c_ulonglong))
    assert one.held_back_by() == ("power brake",)


def test_a_record_names_gpu_driver_clock_and_limit() -> None:
    one = gpu(
        nvmlDeviceGetName=text(b"NVIDIA H200"),
        nvmlSystemGetDriverVersion=text(b"580.1"),
        nvmlDeviceGetEnforcedPowerLimit=number(700_000, ctypes.c_uint),
        nvmlDeviceGetMaxClockInfo=number(1980, ctypes.c_uint),
    )
    found = one.describe()
    assert (found["name"], found["driver_version"]) == ("NVIDIA H200", "580.1")
    assert (found["most_watts"], found["most_clock_mhz"]) == (700.0, 1980)
    assert found["watts"] is None


def test_without_nvml_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    nvml.library.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(nvml.NvmlError, match=r"libnvidia-ml\.so"):
        nvml.library()
    nvml.library.cache_clear()
