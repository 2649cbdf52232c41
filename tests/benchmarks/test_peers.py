"""Other programs: only what is installed and gets through takes part."""

from __future__ import annotations

from typing import Any

import pytest
from hopper_bench import peers

from stridewright.codegen.bench import Entrant


class Stream:
    def synchronize(self) -> None:
        pass


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="there are torch, quack, triton"):
        peers.peers(["torch", "cutlass"])


def test_what_is_missing_or_refuses_a_shape_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def entrant(name: str) -> Entrant:
        def launch(stream: Any) -> None:
            if name == "second":
                raise RuntimeError("no such shape")

        return Entrant((name,), name, launch, lambda target: None)  # type: ignore[arg-type,return-value]

    monkeypatch.setattr(peers, "installed", lambda names: [name for name in names if name != "quack"])
    monkeypatch.setattr(peers.importlib, "import_module", lambda name: None)
    monkeypatch.setattr(peers, "timing_stream", Stream)
    monkeypatch.setattr(
        peers,
        "_MAKERS",
        {"torch": lambda buffers: [entrant("first"), entrant("second")], "quack": lambda buffers: [entrant("third")]},
    )
    assert [one.detail for one in peers.peers(["torch", "quack"])([])] == ["first"]
    assert "second left out: RuntimeError: no such shape" in capsys.readouterr().err
