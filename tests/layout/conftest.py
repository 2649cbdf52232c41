"""Makes the definitions beside the tests importable by them, and takes the clock out of the property tests."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
settings.register_profile("layout", deadline=None)  # a brute-force oracle may take long on a busy machine
settings.load_profile("layout")
