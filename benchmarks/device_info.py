"""What a recorded figure was measured on: GPU, driver, clocks and power as found, versions, date."""

from __future__ import annotations

import datetime
import subprocess
from typing import Any

_QUERY = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.draw,power.limit,temperature.gpu"


def device_info() -> dict[str, Any]:
    """The current device, as a dictionary for JSON. Needs nvidia-smi."""
    line = subprocess.run(
        ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader"], check=True, capture_output=True, text=True
    ).stdout.splitlines()[0]
    values = [value.strip() for value in line.split(",")]
    info: dict[str, Any] = dict(zip(_QUERY.split(","), values, strict=True))
    info["date"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    import cupy

    from stridewright.codegen import nvrtc

    info["nvrtc"] = ".".join(map(str, nvrtc.library().version))
    info["cupy"] = cupy.__version__
    return info
