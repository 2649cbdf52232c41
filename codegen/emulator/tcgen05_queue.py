"""Asynchronous tcgen05 operations in flight: one queue for each thread that issues them, done in any legal order.

    queue.push(operation)         Mma, Copy, Shift or Commit; the scheduler calls queue.complete() at some later time

What is legal: PTX ISA 9.1, section 9.7.16.6, the pipelined pairs (tmem_races.py lists them). Operations that no pair orders may change places;
the race check says where that matters. With seed 0, and in lenient mode, they are done in the order of issue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import collectors, tcgen05_mma
from .tcgen05_mma import Form, Side, Step
from .tmem import TensorMemoryError

if TYPE_CHECKING:
    from .cta import Cta

MOST_STEPS = 8
"""Steps along k that are multiplied at once; few enough for 8-bit integers to stay exact in float32."""


class Operation:
    """Something that a thread issued. `name`: mma, cp, shift or commit; `place`: the instruction; `ctas`: the blocks it uses."""

    __slots__ = ("ctas", "events", "name", "place")

    def __init__(self, name: str, place: int, ctas: Sequence[Cta]) -> None:
        self.events: list[int] = []
        self.name = name
        self.place = place
        self.ctas = ctas

    def after(self, other: Operation) -> bool:
        """Whether this operation is done after an earlier one of the same thread, whatever happens."""
        raise NotImplementedError

    def run(self) -> None:
        """Does it."""
        raise NotImplementedError

    def check_alive(self) -> None:
        """Refuses work on the memory of a block that has ended."""
        for cta in self.ctas:
            if not cta.alive.any():
                raise TensorMemoryError(
                    "ended",
                    f"tcgen05.{self.name} completes after block {cta.ctaid}, whose memory it uses, has ended: a wait for its commit or a "
                    "cluster barrier is missing before the end",
                )


class Mma(Operation):
    """tcgen05.mma."""

    __slots__ = ("accumulate", "collector", "d", "enabled", "form", "scale", "step")

    def __init__(
        self,
        place: int,
        ctas: Sequence[Cta],
        form: Form,
        step: Step,
        d: tuple[int, int],
        accumulate: bool,
        scale: int,
        enabled: Any,
        collector: tuple[str, str],
    ) -> None:
        super().__init__("mma", place, ctas)
        self.collector = collector
        self.form = form
        self.step = step
        self.d = d
        self.accumulate = accumulate
        self.scale = scale
        self.enabled = enabled

    def after(self, other: Operation) -> bool:
        """mma -> mma of one accumulator, shape and kind, or of one collector buffer that is filled or used; cp -> mma; shift -> mma."""
        if isinstance(other, Mma):
            if self.collector[0] == other.collector[0] and not self.collector[1] == other.collector[1] == "discard":
                return True
            return other.d == self.d and other.form.key == self.form.key
        return other.name in ("cp", "shift")

    def continues(self, other: Operation) -> bool:
        """Whether both are steps of one product: each instruction's rounding to f16, and its saturation, must show."""
        fields = self.form.descriptor
        return (
            isinstance(other, Mma)
            and other.form is self.form
            and other.d == self.d
            and self.accumulate
            and not self.scale
            and self.enabled is None
            and self.collector[1] == other.collector[1] == "discard"
            and other.enabled is None
            and other.step.a_in_memory == self.step.a_in_memory
            and not self.form.vector
            and fields.d != "f16"
            and not fields.saturate
        )

    def run(self) -> None:
        """Multiplies."""
        self.run_steps([self.step])

    def run_steps(self, steps: Sequence[Step]) -> None:
        """Multiplies this step and those that continue it."""
        self.check_alive()
        launch = self.ctas[0].launch
        sides = [Side(cta.shared, cta.tensor.memory) for cta in self.ctas]
        arch = launch.program.module.target
        held = self.ctas[0].tensor.collectors
        collectors.at_work(held, self.collector, self.form, sides, steps[0], self.d[0], arch)
        tcgen05_mma.run(
            self.form,
            sides,
            steps,
            self.d,
            self.accumulate,
            launch.numerics,
            arch,
            self.scale,
            self.enabled,
        )


class Move(Operation):
    """tcgen05.cp or tcgen05.shift: a function that moves the bits."""

    __slots__ = ("four", "move")

    def __init__(
        self, name: str, place: int, ctas: Sequence[Cta], move: Callable[[], None], four: bool = False
    ) -> None:
        super().__init__(name, place, ctas)
        self.move = move
        self.four = four

    def after(self, other: Operation) -> bool:
        """mma -> shift; shift -> cp.4x256b."""
        if self.name == "shift":
            return other.name == "mma"
        return self.four and other.name == "shift"

    def run(self) -> None:
        """Moves."""
        self.check_alive()
        self.move()


class Commit(Operation):
    """tcgen05.commit: arrives when everything before it is done."""

    __slots__ = ("arrive",)

    def __init__(self, place: int, arrive: Callable[[], None]) -> None:
        super().__init__("commit", place, ())
        self.arrive = arrive

    def after(self, other: Operation) -> bool:
        """All that came before."""
        return True

    def run(self) -> None:
        """Arrives."""
        self.arrive()


class Queue:
    """The operations of one thread. The scheduler has it in flight while there are any."""

    def __init__(self, cta: Cta, thread: int) -> None:
        self.cta = cta
        self.thread = thread
        self.operations: list[Operation] = []
        self.place = 0

    def push(self, operation: Operation) -> None:
        """Takes an operation in."""
        self.operations.append(operation)
        if len(self.operations) == 1:
            self.cta.machine.fly(self)

    def complete(self) -> None:
        """Does some of the operations, all of them with seed 0."""
        machine, operations = self.cta.machine, self.operations
        if not machine.shuffled:
            while operations:
                self._run(0)
            return
        for _ in range(machine.random.randint(1, len(operations))):
            if not operations:
                break
            self._run(self._pick())
        if operations:
            machine.fly(self)

    def _pick(self) -> int:
        if self.cta.launch.lenient:
            return 0
        operations = self.operations
        free = [
            number
            for number, one in enumerate(operations)
            if not any(one.after(other) for other in operations[:number])
        ]
        return free[self.cta.machine.random.randrange(len(free))]

    def _run(self, number: int) -> None:
        operations = self.operations
        first = operations.pop(number)
        self.place = first.place
        log = self.cta.machine.tensor_log
        if not isinstance(first, Mma):
            first.run()
            if log is not None:
                log.done(first.events)
            return
        steps, events = [first.step], [first.events]
        if self.cta.launch.numerics == "float32":
            while len(steps) < MOST_STEPS and number < len(operations):
                following = operations[number]
                if not isinstance(following, Mma) or not following.continues(first):
                    break
                steps.append(following.step)
                events.append(following.events)
                del operations[number]
        first.run_steps(steps)
        if log is not None:
            for one in events:
                log.done(one)

    def describe(self) -> str:
        """For reports."""
        names = ", ".join(sorted({one.name for one in self.operations}))
        return f"tcgen05 operations of thread {self.thread} ({names or 'none'})"
