"""stub"""
from __future__ import annotations
from typing import Any
class ClusterRaces:
    def __init__(self, cluster: Any, launch: Any) -> None:
        pass
