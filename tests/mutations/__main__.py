"""Runs mutants and says of each what found it: ``python -m tests.mutations [words of names ...] [--json FILE]`` at the repository's root."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path

from .suite import mutants, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutants whose names have one of these; all if none is given")
    parser.add_argument("--json", type=Path, help="where to write the results")
    arguments = parser.parse_args()
    start = time.perf_counter()
    rows = []
    for mutant in mutants():
        if arguments.words and not any(word in mutant.name for word in arguments.words):
            continue
        begun = time.perf_counter()
        found, seed, words, complaints = "broken", 0, "", tuple[str, ...]()
        try:
            outcome = run(mutant)
            complaints = outcome.complaints
            found, seed, words = outcome.verdict.kind, outcome.verdict.seed, outcome.verdict.words
            if found == "survived" and complaints:
                found = "build"
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - begun
        refused = " (and the build is refused)" if complaints else ""
        print(
            f"{mutant.name}: {found}{refused}, seed {seed}, {seconds:.1f} s: {words.splitlines()[0][:150] if words else ''}",
            flush=True,
        )
        rows.append(
            {
                "mutant": mutant.name,
                "found": found,
                "refused": bool(complaints),
                "complaints": list(complaints),
                "seed": seed,
                "words": words,
                "seconds": seconds,
            }
        )
        if arguments.json and len(rows) % 20 == 0:
            arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    kinds = Counter(str(row["found"]) for row in rows)
    print(
        f"{len(rows)} mutants in {time.perf_counter() - start:.0f} s: {dict(kinds)}; refused by the build: {sum(bool(row['refused']) for row in rows)}"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
