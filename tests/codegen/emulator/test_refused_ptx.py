"""PTX and arguments that ptxas or a launch would not take are refused before anything runs."""

from __future__ import annotations

import numpy as np
import pytest

from stridewright.codegen.emulator import EmulationError, UnsupportedInstruction, emulate_ptx

TEXT = """.version 9.0
.target {target}
.address_size 64
.visible .entry k(.param .u32 count, .param .f32 scale) {{ .reg .b32 %r<4>; .reg .f32 %f<2>;
ld.param.u32 %r1, [count]; ld.param.f32 %f1, [scale]; {body} ret; }}
"""


def run(body: str = "", target: str = "sm_90a", count: object = 5, scale: object = 1.5) -> None:
    emulate_ptx(TEXT.format(target=target, body=body), "k", (1, 1, 1), (128, 1, 1), [count, scale])


def test_the_kernel_without_a_fault_runs() -> None:
    run()
    run(count=np.uint32(5), scale=np.float32(1.5))


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100a", "sm_120a"])
def test_wgmma_is_for_sm_90a_alone(target: str) -> None:
    run("wgmma.fence.sync.aligned;")
    with pytest.raises(UnsupportedInstruction, match=f"sm_90a alone, and this PTX is for {target}"):
        run("wgmma.fence.sync.aligned;", target)


@pytest.mark.parametrize("body", ["add.u32 %r1;", "add.u32 %r1, %r2;", "mov.u32 %r1;", "mov.u32 %r1, %r2, %r3;"])
def test_another_number_of_operands_is_named(body: str) -> None:
    with pytest.raises(UnsupportedInstruction, match=r"it does not take \d operands"):
        run(body)


@pytest.mark.parametrize(("count", "scale"), [(np.float32(5), 1.5), (5, np.int32(1)), (5, np.uint32(1))])
def test_a_scalar_of_another_kind_is_not_read_as_bits(count: object, scale: object) -> None:
    with pytest.raises(EmulationError, match="is a number of another kind"):
        run(count=count, scale=scale)
