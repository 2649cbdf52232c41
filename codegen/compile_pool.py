"""Kernels compiled in parallel by processes of their own, while this one measures.

NVRTC could run in threads, but what surrounds it is Python: threads that generate source would hold the interpreter
while the measuring thread captures launches. A process has its own, and one that crashes costs one kernel. The kernels
end in the cache on the disk, from which this process loads them. Knows nothing of tuning.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from stridewright.kernels.config import GemmConfig

from .tuned.records import config_record, problem_record

_STOP = 1 << 30
_MOST_WORKERS = 16
"""Each holds a compiler, some hundred MB of memory."""


@dataclass(frozen=True)
class Compiled:
    """How compiling went: host ``seconds``, ``registers`` a thread, and why the kernel must not be used (``refused``, empty
    where it may).
    """

    seconds: float
    registers: int = 0
    refused: str = ""


class Compiler(Protocol):
    """What compiles configurations ahead of their use."""

    def submit(self, config: GemmConfig, priority: int = 0) -> Future[Compiled]:
        """Ask for a kernel; lower priorities come first, equal ones in turn."""
        ...


def default_workers() -> int:
    """As many as this process may use cores but one, which stays with the measuring; not more than are ever waited for.

    >>> 1 <= default_workers() <= 16
    True
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    return min(max(1, cores - 1), _MOST_WORKERS)


class CompilePool:
    """``workers`` processes that compile configurations into the cache. Use it as a context; leaving ends the processes.

    A configuration is compiled once, however often it is asked for. Its problem needs the sizes.
    """

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"workers={workers}: must be at least 1")
        self.workers = workers or default_workers()
        self._tasks: queue.PriorityQueue[tuple[int, int, GemmConfig | None, Future[Compiled]]] = queue.PriorityQueue()
        self._known: dict[str, Future[Compiled]] = {}
        self._priorities: dict[str, int] = {}
        self._count = itertools.count()
        self._threads: list[threading.Thread] = []
        self._processes: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, config: GemmConfig, priority: int = 0) -> Future[Compiled]:
        """A future of how compiling ``config`` went; lower ``priority`` comes first."""
        if self._closed:
            raise RuntimeError("this pool is closed")
        with self._lock:
            known = self._known.get(config.name)
            fresh = known is None or known.cancelled()
            if known is None or fresh:
                known = self._known[config.name] = Future()
                self._priorities[config.name] = priority + 1
            # Asked for again and more urgently, it stands in the queue a second time; whoever takes it first has it.
            if not known.done() and priority < self._priorities[config.name]:
                self._priorities[config.name] = priority
                self._tasks.put((priority, next(self._count), config, known))
        if fresh and len(self._threads) < self.workers:
            thread = threading.Thread(target=self._work, name="stridewright-compile", daemon=True)
            self._threads.append(thread)
            thread.start()
        return known

    def _claim(self, future: Future[Compiled]) -> bool:
        with self._lock:
            return not future.running() and not future.done() and future.set_running_or_notify_cancel()

    def close(self) -> None:
        """Ends the processes; what was asked for and not begun is cancelled."""
        self._closed = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._tasks.get_nowait()[3].cancel()
        for _ in self._threads:
            self._tasks.put((_STOP, next(self._count), None, Future()))
        with self._lock:
            processes = list(self._processes)
        for process in processes:
            process.kill()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _work(self) -> None:
        process: subprocess.Popen[str] | None = None
        while True:
            _, _, config, future = self._tasks.get()
            if config is None:
                break
            if not self._claim(future):
                continue
            try:
                if process is None:
                    process = self._start()
                future.set_result(_ask(process, config))
            except (OSError, ValueError) as error:
                # The process died, of this kernel most likely; the next one gets a new process.
                self._end(process)
                process = None
                future.set_result(Compiled(0.0, refused=f"the compiling process ended: {error}"))
        self._end(process)

    def _start(self) -> subprocess.Popen[str]:
        # The child must find this very package, however this process came to import it.
        import stridewright

        paths = [str(Path(stridewright.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "stridewright.codegen.compile_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            # Ctrl-C is for the process that measures; it ends this one.
            start_new_session=True,
        )
        with self._lock:
            self._processes.add(process)
        return process

    def _end(self, process: subprocess.Popen[str] | None) -> None:
        if process is None:
            return
        with contextlib.suppress(OSError):
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        with self._lock:
            self._processes.discard(process)


def _ask(process: subprocess.Popen[str], config: GemmConfig) -> Compiled:
    assert process.stdin is not None
    assert process.stdout is not None
    request = {"config": config_record(config), "problem": problem_record(config.problem)}
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise ValueError(f"no answer about {config.name}")
    reply: dict[str, Any] = json.loads(line)
    refused = reply.get("refused") or reply.get("error") or ""
    return Compiled(float(reply.get("seconds", 0.0)), int(reply.get("registers", 0)), str(refused))
