"""A process that compiles what it is told, one configuration a line, into the cache: one of a ``CompilePool``.

Reads JSON objects ``{"config": ..., "problem": ...}`` from standard input and answers each with one line: ``seconds`` and
``registers`` of the compiled kernel, ``refused`` with the assembler's complaint, or ``error``. It ends with its input.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from .build import BuildError
from .gemm import Gemm
from .tuned.records import read_config, read_problem


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Compiles one request and says how it went. Never raises.

    >>> answer({"config": {}, "problem": {"m": 0}})["error"]
    'StaleRecordError: m=0: must be a whole number from 1 up'
    """
    start = time.perf_counter()
    try:
        problem = read_problem(request["problem"])
        config = read_config(request["config"], problem)
        gemm = Gemm(**{name: getattr(problem, name) for name in _PROBLEM}, arch=config.arch, config=config)
        built = gemm.build
        return {"seconds": time.perf_counter() - start, "registers": max(k.registers for k in built.kernels)}
    except BuildError as error:
        return {"seconds": time.perf_counter() - start, "refused": "; ".join(error.lines[:3])}
    except Exception as error:  # whatever it is, it belongs to this request alone
        return {"error": f"{type(error).__name__}: {error}"}


_PROBLEM = ("m", "n", "k", "a", "b", "d", "a_major", "b_major")


def main() -> None:
    """Answers requests until there are no more."""
    for line in sys.stdin:
        reply = json.dumps(answer(json.loads(line)))
        sys.stdout.write(reply + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
