"""A warp-specialised Hopper GEMM of our own in the CuTe DSL: D (M, N) = A (M, K) times B (N, K) transposed.

What is under test is not this kernel but what NVIDIA's compiler makes of it: TMA partitioning, swizzled layouts, matrix descriptors and
pipelines all come from the DSL. One warp loads by TMA into a ring of stages; the consumer warpgroups either share each tile
(cooperative: 64 rows of it each) or take turns at whole tiles (ping-pong). Blocks are persistent. A cluster shares A along N and B along M by
multicast. Results go from the accumulators straight to global memory, a store per element, so that ragged edges are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cutlass
import cutlass.utils.hopper_helpers as hopper
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from .capture import DeviceTensor, HostFunction, Launch

WARPGROUP = 128


@dataclass(frozen=True)
class Form:
    """What one instance is compiled for; tile is (M, N, K) of one block."""

    tile: tuple[int, int, int] = (128, 128, 64)
    stages: int = 4
    consumers: int = 2
    ping_pong: bool = False
    cluster: tuple[int, int] = (1, 1)

    @property
    def threads(self) -> int:
        """The producer's warpgroup and the consumers'."""
        return WARPGROUP * (1 + self.consumers)


class CuteGemm:
    """Calls as the DSL's entry point; the operands' majors are read from their strides."""

    def __init__(self, form: Form, sum_type: Any = cutlass.Float32) -> None:
        self.form = form
        self.sum_type = sum_type

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor, blocks: cutlass.Int32, stream: Any) -> None:
        form = self.form
        tile_m, tile_n, tile_k = form.tile
        self.dtype = a.element_type
        a_layout, b_layout = LayoutEnum.from_tensor(a), LayoutEnum.from_tensor(b)
        rows_of_warpgroups = 1 if form.ping_pong else form.consumers
        tiled_mma = hopper.make_trivial_tiled_mma(
            a.element_type,
            b.element_type,
            a_layout.sm90_mma_major_mode(),
            b_layout.sm90_mma_major_mode(),
            self.sum_type,
            (rows_of_warpgroups, 1, 1),
            (64, tile_n),
        )
        a_smem = hopper.make_smem_layout_a(a_layout, form.tile, a.element_type, form.stages)
        b_smem = hopper.make_smem_layout_b(b_layout, form.tile, b.element_type, form.stages)
        tma_a, tensor_a = _load_atom(a, a_smem, (tile_m, tile_k), form.cluster[1])
        tma_b, tensor_b = _load_atom(b, b_smem, (tile_n, tile_k), form.cluster[0])
        tiles_m = cute.ceil_div(cute.ceil_div(d.shape[0], tile_m), form.cluster[0])
        tiles_n = cute.ceil_div(cute.ceil_div(d.shape[1], tile_n), form.cluster[1])
        sizes = (d.shape[0], d.shape[1], d.stride[0])
        self.kernel(
            tma_a, tensor_a, tma_b, tensor_b, d.iterator, sizes, tiled_mma, a_smem, b_smem, tiles_m, tiles_n
        ).launch(
            grid=(form.cluster[0], form.cluster[1], blocks),
            block=(form.threads, 1, 1),
            cluster=(form.cluster[0], form.cluster[1], 1),
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        tma_a: cute.CopyAtom,
        tensor_a: cute.Tensor,
        tma_b: cute.CopyAtom,
        tensor_b: cute.Tensor,
        d_pointer: cute.Pointer,
        d_sizes: tuple[cutlass.Int32, cutlass.Int32, cutlass.Int64],
        tiled_mma: cute.TiledMma,
        a_smem: cute.ComposedLayout,
        b_smem: cute.ComposedLayout,
        tiles_m: cutlass.Int32,
        tiles_n: cutlass.Int32,
    ) -> None:
        form = self.form
        tile_m, tile_n, tile_k = form.tile
        d = cute.make_tensor(d_pointer, cute.make_layout(d_sizes[:2], stride=(d_sizes[2], 1)))
        thread, _, _ = cute.arch.thread_idx()
        _, _, first_tile = cute.arch.block_idx()
        _, _, blocks = cute.arch.grid_dim()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        group = warp // 4
        cluster_layout = cute.make_layout((1, *form.cluster, 1))
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        place = cluster_layout.get_flat_coord(rank)

        smem = SmemAllocator()
        barriers = smem.allocate_array(cutlass.Int64, num_elems=2 * form.stages)
        turns = smem.allocate_array(cutlass.Int64, num_elems=form.consumers)
        s_a = smem.allocate_tensor(self.dtype, a_smem.outer, byte_alignment=1024, swizzle=a_smem.inner)
        s_b = smem.allocate_tensor(self.dtype, b_smem.outer, byte_alignment=1024, swizzle=b_smem.inner)
        stage_bytes = (tile_m + tile_n) * tile_k * self.dtype.width // 8
        consumer_warps = 4 if form.ping_pong else 4 * form.consumers
        sharers = form.cluster[0] + form.cluster[1] - 1
        ring = pipeline.PipelineTmaAsync.create(
            num_stages=form.stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, consumer_warps * sharers),
            tx_count=stage_bytes,
            barrier_storage=barriers,
            cta_layout_vmnk=cluster_layout,
        )
        order = pipeline.PipelineOrder.create(
            barrier_storage=turns,
            depth=1,
            length=form.consumers,
            group_id=group - 1,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, WARPGROUP),
        )

        g_a = cute.local_tile(tensor_a, (tile_m, tile_k), (None, None))
        g_b = cute.local_tile(tensor_b, (tile_n, tile_k), (None, None))
        k_tiles = cute.size(g_a, mode=[3])
        tiles = tiles_m * tiles_n

        if group == 0:
            cute.arch.setmaxregister_decrease(40)
            if warp == 0:
                a_mask = cpasync.create_tma_multicast_mask(cluster_layout, place, mcast_mode=2)
                b_mask = cpasync.create_tma_multicast_mask(cluster_layout, place, mcast_mode=1)
                to_a, from_a = cpasync.tma_partition(
                    tma_a,
                    place[2],
                    cute.make_layout(form.cluster[1]),
                    cute.group_modes(s_a, 0, 2),
                    cute.group_modes(g_a, 0, 2),
                )
                to_b, from_b = cpasync.tma_partition(
                    tma_b,
                    place[1],
                    cute.make_layout(form.cluster[0]),
                    cute.group_modes(s_b, 0, 2),
                    cute.group_modes(g_b, 0, 2),
                )
                filling = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, form.stages)
                tile = first_tile
                while tile < tiles:
                    block_m = tile % tiles_m * form.cluster[0] + place[1]
                    block_n = tile // tiles_m * form.cluster[1] + place[2]
                    for k in cutlass.range(k_tiles, unroll=1):
                        ring.producer_acquire(filling)
                        full = ring.producer_get_barrier(filling)
                        cute.copy(
                            tma_a,
                            from_a[None, block_m, k],
                            to_a[None, filling.index],
                            tma_bar_ptr=full,
                            mcast_mask=a_mask,
                        )
                        cute.copy(
                            tma_b,
                            from_b[None, block_n, k],
                            to_b[None, filling.index],
                            tma_bar_ptr=full,
                            mcast_mask=b_mask,
                        )
                        ring.producer_commit(filling)
                        filling.advance()
                    tile += blocks
                ring.producer_tail(filling)

        if group > 0:
            cute.arch.setmaxregister_increase(232)
            # In ping-pong each consumer is alone with its tile; cooperative consumers split its rows.
            member = thread % WARPGROUP if cutlass.const_expr(form.ping_pong) else thread - WARPGROUP
            slice_of_thread = tiled_mma.get_slice(member)
            slice_of_group = tiled_mma.get_slice(0 if cutlass.const_expr(form.ping_pong) else (group - 1) * WARPGROUP)
            r_a = tiled_mma.make_fragment_A(slice_of_group.partition_A(s_a))
            r_b = tiled_mma.make_fragment_B(slice_of_group.partition_B(s_b))
            sums = cute.make_rmem_tensor(tiled_mma.partition_shape_C((tile_m, tile_n)), self.sum_type)
            reading = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, form.stages)
            turn = order.state.clone()
            step = blocks
            tile = first_tile
            if cutlass.const_expr(form.ping_pong):
                step = blocks * form.consumers
                tile = first_tile + blocks * (group - 1)
                for _ in cutlass.range(k_tiles * (group - 1), unroll=1):
                    reading.advance()
            while tile < tiles:
                block_m = tile % tiles_m * form.cluster[0] + place[1]
                block_n = tile // tiles_m * form.cluster[1] + place[2]
                tiled_mma.set(warpgroup.Field.ACCUMULATE, False)
                if cutlass.const_expr(form.ping_pong):
                    order.wait(turn)
                for _ in cutlass.range(k_tiles, unroll=1):
                    ring.consumer_wait(reading)
                    warpgroup.fence()
                    for step_k in cutlass.range_constexpr(cute.size(r_a, mode=[2])):
                        at = (None, None, step_k, reading.index)
                        cute.gemm(tiled_mma, sums, r_a[at], r_b[at], sums)
                        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
                    warpgroup.commit_group()
                    warpgroup.wait_group(0)
                    ring.consumer_release(reading)
                    reading.advance()
                if cutlass.const_expr(form.ping_pong):
                    turn = order.arrive(turn)
                    for _ in cutlass.range(k_tiles * (form.consumers - 1), unroll=1):
                        reading.advance()
                origin = (block_m, block_n)
                out = slice_of_thread.partition_C(cute.local_tile(d, (tile_m, tile_n), origin))
                names = slice_of_thread.partition_C(
                    cute.local_tile(cute.make_identity_tensor(d.shape), (tile_m, tile_n), origin)
                )
                for i in cutlass.range_constexpr(cute.size(sums)):
                    if cute.elem_less(names[i], d.shape):
                        out[i] = sums[i].to(d.element_type)
                tile += step


def _load_atom(tensor: cute.Tensor, smem: cute.ComposedLayout, tile: tuple[int, int], sharers: int) -> Any:
    operation = cpasync.CopyBulkTensorTileG2SOp() if sharers == 1 else cpasync.CopyBulkTensorTileG2SMulticastOp()
    return cpasync.make_tiled_tma_atom(
        operation, tensor, cute.slice_(smem, (None, None, 0)), tile, num_multicast=sharers
    )


_TYPES: dict[str, Any] = {
    "bf16": cutlass.BFloat16,
    "f16": cutlass.Float16,
    "e4m3": cutlass.Float8E4M3FN,
    "e5m2": cutlass.Float8E5M2,
    "s8": cutlass.Int8,
    "s32": cutlass.Int32,
    "f32": cutlass.Float32,
}


class CompiledCuteGemm:
    """A form compiled for operands of one type and majors "k" or "m"/"n"; D lies row by row."""

    def __init__(
        self, folder: Path, form: Form, dtype: str, d_dtype: str = "bf16", a_major: str = "k", b_major: str = "k"
    ) -> None:
        compiled = cute.compile(
            CuteGemm(form, cutlass.Int32 if d_dtype == "s32" else cutlass.Float32),
            _any_matrix(_TYPES[dtype], a_major == "k"),
            _any_matrix(_TYPES[dtype], b_major == "k"),
            _any_matrix(_TYPES[d_dtype], True),
            cutlass.Int32(1),
            make_fake_stream(use_tvm_ffi_env_stream=True),
            options="--enable-tvm-ffi",
        )
        self._host = HostFunction(compiled, folder)

    def launch(self, a: DeviceTensor, b: DeviceTensor, d: DeviceTensor, clusters: int) -> Launch:
        """The launch for operands (M, K), (N, K), (M, N) with so many persistent clusters."""
        return self._host.launch(a, b, d, clusters)


def _any_matrix(dtype: Any, rows_contiguous: bool) -> Any:
    pitch = cute.sym_int64(divisibility=128 // dtype.width)
    strides = (pitch, 1) if rows_contiguous else (1, pitch)
    return make_fake_tensor(dtype, (cute.sym_int(), cute.sym_int()), stride=strides, assumed_align=16)
