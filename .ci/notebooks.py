"""Execute notebooks and fail with the first cell that fails. Usage: python .ci/notebooks.py FOLDER."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import jupytext
import nbclient


def main() -> None:
    """Run every jupytext script and every .ipynb of the folder in a kernel of its own."""
    folder = Path(sys.argv[1])
    found = sorted([*folder.glob("*.py"), *folder.glob("*.ipynb")])
    for path in found:
        notebook = jupytext.read(path)
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as elsewhere:
            # In a folder of its own: a notebook must find the package installed, and leave nothing behind here.
            nbclient.NotebookClient(
                notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": elsewhere}}
            ).execute()
        print(f"{path}: {len(notebook.cells)} cells in {time.perf_counter() - start:.1f} s")
    if not found:
        raise SystemExit(f"no notebooks in {folder}")


if __name__ == "__main__":
    main()
