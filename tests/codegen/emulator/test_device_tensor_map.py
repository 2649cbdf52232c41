"""A tensor map made on the device, field by field, and used."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from stridewright.codegen.emulator import EmulationError, UnsupportedInstruction, emulate_ptx

KERNEL = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 source, .param .u64 map, .param .u64 out, .param .u32 row) {{
 .reg .b32 %r<20>; .reg .b64 %d<12>; .reg .pred %p<4>;
 .shared .align 1024 .b8 tile[1024];
 .shared .align 128 .b8 image[128];
 .shared .align 8 .b64 bar;
 ld.param.u64 %d0, [source];
 ld.param.u64 %d1, [map];
 ld.param.u64 %d2, [out];
 ld.param.u32 %r9, [row];
 mov.u32 %r0, %tid.x;
 mov.b32 %r1, image;
 mov.b32 %r2, bar;
 mov.b32 %r3, tile;
 shl.b32 %r4, %r0, 2;
 add.u32 %r5, %r1, %r4;
 st.shared.b32 [%r5], 0;
 bar.warp.sync -1;
 setp.ne.u32 %p1, %r0, 0;
 @%p1 bra MADE;
 cvt.u64.u32 %d3, %r1;
 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%d3], %d0;
 tensormap.replace.tile.rank.shared::cta.b1024.b32 [%d3], 1;
 tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%d3], 0, 64;
 tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%d3], 1, {rows};
 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%d3], 0, 96;
 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%d3], 1, 20;
 tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%d3], 0, 192;
 tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%d3], 0, 1;
 tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%d3], 1, 1;
 tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%d3], 10;
 tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%d3], 0;
 tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%d3], 0;
 mbarrier.init.shared::cta.b64 [%r2], 1;
 fence.mbarrier_init.release.cluster;
MADE:
 bar.warp.sync -1;
 tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d1], [%d3], 128;
 {fence}
 fence.proxy.async;
 bar.sync 0;
 @%p1 bra WAIT;
 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 1024;
 cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r3], [%d1, {{32, %r9}}], [%r2];
WAIT:
 mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;
 @!%p2 bra WAIT;
 mul.wide.u32 %d4, %r0, 32;
 add.u64 %d2, %d2, %d4;
 shl.b32 %r6, %r0, 5;
 add.u32 %r6, %r6, %r3;
 ld.shared.v4.b32 {{%r10, %r11, %r12, %r13}}, [%r6];
 st.global.v4.b32 [%d2], {{%r10, %r11, %r12, %r13}};
 ld.shared.v4.b32 {{%r10, %r11, %r12, %r13}}, [%r6+16];
 st.global.v4.b32 [%d2+16], {{%r10, %r11, %r12, %r13}};
 ret;
}}
"""

FENCE = "fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;"
COPY = "[%d1], [%d3], 128;"


def loaded(row: int, fence: str = FENCE, rows: str = "8", strict: bool = True) -> tuple[np.ndarray, np.ndarray]:
    source = np.arange(20 * 96, dtype=np.float32).reshape(20, 96).astype(ml_dtypes.bfloat16)
    image, out = np.zeros(128, np.uint8), np.full((8, 64), np.nan, ml_dtypes.bfloat16)
    # The copy to global memory is a warp's: every thread gives the shared address.
    ptx = KERNEL.format(fence=fence, rows=rows).replace(COPY, "[%d1], [%d5], 128;")
    ptx = ptx.replace(" mov.b32 %r2, bar;", " cvt.u64.u32 %d5, %r1;\n mov.b32 %r2, bar;")
    result = emulate_ptx(ptx, "k", 1, 32, [source, image, out, np.uint32(row)], strict=strict)
    assert not result.races
    return source, out


@pytest.mark.parametrize("row", [0, 12])
def test_the_box_that_the_made_map_says(row: int) -> None:
    source, out = loaded(row)
    assert np.array_equal(out, source[row : row + 8, 32:])


def test_rows_past_the_end_are_filled() -> None:
    source, out = loaded(16)
    assert np.array_equal(out[:4], source[16:, 32:])
    assert not out[4:].any()


def test_use_without_the_acquiring_fence_is_found() -> None:
    with pytest.raises(EmulationError, match=r"without fence\.proxy\.tensormap::generic\.acquire"):
        loaded(0, fence="")
    source, out = loaded(0, fence="", strict=False)
    assert np.array_equal(out, source[:8, 32:])


def test_values_that_no_map_has_are_refused() -> None:
    with pytest.raises(EmulationError, match="box_dim=300: must be 1 to 256"):
        loaded(0, rows="300")


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(UnsupportedInstruction):
        loaded(0, fence="tensormap.replace.tile.swizzle_atomicity.shared::cta.b1024.b32 [%d5], 0;")
