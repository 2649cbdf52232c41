"""``ladder --arch sm_100a``: where the tensor core of each Blackwell rung waits, by the cycle model. Nothing is run."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

from .output import console, print_json

SIZES = (8192, 8192, 8192)
"""What is modelled where no sizes are given."""


def show(m: int, n: int, k: int, arch: str, number: str | None, as_json: bool) -> None:
    """Prints the modelled ladder. Raises ValueError for a rung that there is none of."""
    from stridewright.codegen.cycles_report import ladder_cycles, sensitivity, sensitivity_table

    rungs = ladder_cycles(m, n, k, arch)
    numbers = [str(rung.number) for rung, _ in rungs]
    if number is not None and number not in numbers:
        raise ValueError(f"--rung {number}: the rungs of {arch} are {', '.join(numbers)}")
    taken = [(rung, verdict) for rung, verdict in rungs if number in (None, str(rung.number))]
    best = rungs[-1][0].config
    best = best.replace(problem=dataclasses.replace(best.problem, m=m, n=n, k=k))
    if as_json:
        table = {
            name: {str(factor): verdict.steady for factor, verdict in row.items()}
            for name, row in sensitivity(best).items()
        }
        found = [{"number": rung.number, "title": rung.title, "idea": rung.idea, **v.record()} for rung, v in taken]
        what = "a cycle model, not a measurement"
        print_json({"what": what, "arch": arch, "m": m, "n": n, "k": k, "rungs": found, "sensitivity": table})
        return
    out = console()
    out.print(
        f"D[{m},{n}] = A[{m},{k}] B[{n},{k}]^T, bf16: a cycle model of a {rungs[0][1].chip}, not a measurement\n",
        markup=False,
    )
    out.print(
        f"{'rung':>4}  {'':<20}{'us':>8}  {'of peak':>8}  {'steady':>7}  the two largest of what is lost, of all SMs' time",
        markup=False,
    )
    before = {after.number: earlier for (_, earlier), (after, _) in pairwise(rungs)}
    for rung, verdict in taken:
        reasons = sorted(verdict.lost.items(), key=lambda item: -item[1])[:2]
        rest = ", ".join(f"{share:.1%} {reason}" for reason, share in reasons if share >= 0.001)
        if rung.number in before and before[rung.number].seconds == verdict.seconds:
            rest += f"; as rung {rung.number - 1}: the model has no word for what it adds, or nothing waits for it"
        out.print(
            f"{rung.number:>4}  {rung.title:<20}{verdict.seconds * 1e6:>8.1f}  {verdict.use:>8.1%}  {verdict.steady:>7.1%}  {rest}",
            markup=False,
        )
    out.print(
        "\nof peak: operations over what all SMs could do, launch and idle SMs included; steady: the busiest SM's share of the time "
        "between its first multiply and its last in which it multiplies",
        markup=False,
    )
    if number is None:
        out.print(
            "\nthe best rung, with a constant of the chip halved, a fifth less, a fifth more, doubled", markup=False
        )
        for line in sensitivity_table(best):
            out.print(line, markup=False)
    else:
        for _, verdict in taken:
            out.print("\n" + "\n".join(verdict.lines()), markup=False)
