"""The CUDA driver through ctypes, and a compiler: all that the probes need of a machine with a GPU."""

from __future__ import annotations

import ctypes
import datetime
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ARCH = "sm_90a"
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, cuda.h


class DeviceError(RuntimeError):
    """A driver call failed; ``status`` is its CUresult."""

    def __init__(self, call: str, status: int) -> None:
        super().__init__(f"{call}: CUresult {status}")
        self.status = status


def compile_cubin(source: str) -> bytes:
    """The cubin for sm_90a: by NVRTC where the package finds one, else by nvcc."""
    try:
        from stridewright.codegen import nvrtc

        return nvrtc.compile(source, ARCH).cubin
    except Exception as error:
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        if not os.path.exists(nvcc):
            raise
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "probe.cu"
            path.write_text(source)
            command = [nvcc, "-cubin", f"-arch={ARCH}", "-o", str(path.with_suffix(".cubin")), str(path)]
            made = subprocess.run(command, capture_output=True, text=True, check=False)
            if made.returncode:
                raise RuntimeError(f"NVRTC: {error}\nnvcc: {made.stderr[-2000:]}") from error
            return path.with_suffix(".cubin").read_bytes()


class Device:
    """One context on device 0."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.cuda, name)(*arguments)
        if status:
            raise DeviceError(name, status)

    def load(self, source: str) -> Module:
        """A module from CUDA C++."""
        handle = ctypes.c_void_p()
        cubin = compile_cubin(source)
        self._call("cuModuleLoadData", ctypes.byref(handle), ctypes.c_char_p(cubin))
        return Module(self, handle)

    def buffer(self, data: np.ndarray[Any, Any] | int) -> Buffer:
        """Device memory: a copy of an array, or so many zeroed bytes."""
        if isinstance(data, int):
            data = np.zeros(data, np.uint8)
        return Buffer(self, np.ascontiguousarray(data))

    def encode_tensor_map(self, arguments: Any, address: int) -> tuple[int, bytes]:
        """(CUresult, 128 bytes) of cuTensorMapEncodeTiled for ``tensor_map_driver.DriverArguments``."""
        raw = ctypes.create_string_buffer(128 + 128)
        aligned = (ctypes.addressof(raw) + 127) // 128 * 128

        def words(kind: Any, values: Sequence[int]) -> Any:
            return (kind * max(len(values), 1))(*[int(v) & ((1 << 8 * ctypes.sizeof(kind)) - 1) for v in values])

        status = self.cuda.cuTensorMapEncodeTiled(
            ctypes.c_void_p(aligned),
            ctypes.c_int(arguments.dtype),
            ctypes.c_uint32(arguments.rank),
            ctypes.c_void_p(address),
            words(ctypes.c_uint64, arguments.shape),
            words(ctypes.c_uint64, arguments.strides_bytes),
            words(ctypes.c_uint32, arguments.box),
            words(ctypes.c_uint32, arguments.element_strides),
            ctypes.c_int(arguments.interleave),
            ctypes.c_int(arguments.swizzle),
            ctypes.c_int(arguments.l2_promotion),
            ctypes.c_int(arguments.oob_fill),
        )
        return int(status), ctypes.string_at(aligned, 128)


class Buffer:
    """Device memory that is read back as what it was made from."""

    def __init__(self, device: Device, data: np.ndarray[Any, Any]) -> None:
        self.device, self.dtype, self.shape, self.bytes = device, data.dtype, data.shape, max(data.nbytes, 16)
        pointer = ctypes.c_uint64()
        device._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(self.bytes))
        self.address = int(pointer.value)
        self.write(data)

    def write(self, data: np.ndarray[Any, Any]) -> None:
        """Copy an array of the same size in."""
        data = np.ascontiguousarray(data)
        self.device._call(
            "cuMemcpyHtoD_v2",
            ctypes.c_uint64(self.address),
            ctypes.c_void_p(data.ctypes.data),
            ctypes.c_size_t(data.nbytes),
        )

    def read(self) -> np.ndarray[Any, Any]:
        """Copy it out, waiting for all kernels."""
        out = np.empty(self.shape, self.dtype)
        self.device._call(
            "cuMemcpyDtoH_v2",
            ctypes.c_void_p(out.ctypes.data),
            ctypes.c_uint64(self.address),
            ctypes.c_size_t(out.nbytes),
        )
        return out

    def free(self) -> None:
        """Give it back."""
        self.device._call("cuMemFree_v2", ctypes.c_uint64(self.address))


class Module:
    """A loaded cubin."""

    def __init__(self, device: Device, handle: ctypes.c_void_p) -> None:
        self.device, self.handle = device, handle
        self._kernels: dict[str, ctypes.c_void_p] = {}

    def launch(self, name: str, threads: int, arguments: Sequence[Any], shared: int = 0) -> None:
        """One block. Arguments: Buffer (its address), int (32 bits), bytes (by value, as a tensor map)."""
        if name not in self._kernels:
            function = ctypes.c_void_p()
            self.device._call(
                "cuModuleGetFunction", ctypes.byref(function), self.handle, ctypes.c_char_p(name.encode())
            )
            if shared > 48 * 1024:
                self.device._call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, shared)
            self._kernels[name] = function
        values: list[Any] = []
        for argument in arguments:
            if isinstance(argument, Buffer):
                values.append(ctypes.c_uint64(argument.address))
            elif isinstance(argument, bytes):
                values.append(ctypes.create_string_buffer(argument, len(argument)))
            else:
                values.append(ctypes.c_int32(argument))
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        self.device._call(
            "cuLaunchKernel",
            self._kernels[name],
            1,
            1,
            1,
            threads,
            1,
            1,
            shared,
            ctypes.c_void_p(),
            pointers,
            ctypes.c_void_p(),
        )
        self.device._call("cuCtxSynchronize")


def facts() -> dict[str, str]:
    """GPU, driver, clocks and date as found; nothing is set."""
    query = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit,temperature.gpu"
    found = {"date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
    try:
        command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
        line = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.splitlines()[0]
        found |= dict(zip(query.split(","), (part.strip() for part in line.split(",")), strict=True))
    except (OSError, subprocess.SubprocessError, IndexError, ValueError) as error:
        found["nvidia_smi"] = f"not read: {error}"
    try:
        from stridewright.codegen import nvrtc

        found["nvrtc"] = ".".join(map(str, nvrtc.library().version))
    except Exception as error:
        found["nvrtc"] = f"not loaded: {error}"
    return found
