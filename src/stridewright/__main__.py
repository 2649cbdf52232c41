"""``python -m stridewright``: the command line where nothing is installed (``PYTHONPATH=src``)."""

from __future__ import annotations

from stridewright.codegen.cli import main

if __name__ == "__main__":
    main()
