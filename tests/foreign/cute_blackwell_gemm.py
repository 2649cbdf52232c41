"""A warp-specialised Blackwell GEMM of our own in the CuTe DSL: D (M, N) = A (M, K) times B (N, K) transposed.

As cute_gemm.py, but for tcgen05: warp 5 loads by TMA, warp 4 multiplies into tensor memory, warps 0 to 3 take the sums out and store them an
element at a time. Every block, or pair of blocks (`pair`), computes one tile; a cluster shares A along N and B along M by multicast.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cutlass
import cutlass.utils.blackwell_helpers as blackwell
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.cute.runtime import make_fake_stream
from cutlass.memory import SmemAllocator, TmemAllocator
from cutlass.tensor_utils import LayoutEnum

from .capture import DeviceTensor, HostFunction, Launch, compiling_for
from .cute_gemm import _TYPES, _any_matrix

EPILOGUE_WARPS, MMA_WARP, TMA_WARP = 4, 4, 5


@dataclass(frozen=True)
class BlackwellForm:
    """What one instance is compiled for; `tile` is (M, N) of one product: of a block, or of a pair of blocks."""

    tile: tuple[int, int] = (128, 128)
    pair: bool = False
    cluster: tuple[int, int] = (1, 1)
    stages: int = 4


class BlackwellGemm:
    """Calls as the DSL's entry point; the operands' majors are read from their strides."""

    def __init__(self, form: BlackwellForm, sum_type: Any = cutlass.Float32) -> None:
        self.form = form
        self.sum_type = sum_type

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor, blocks: cutlass.Int32, stream: Any) -> None:
        form = self.form
        self.dtype = a.element_type
        group = tcgen05.CtaGroup.TWO if cutlass.const_expr(form.pair) else tcgen05.CtaGroup.ONE
        tiled_mma = blackwell.make_trivial_tiled_mma(
            a.element_type,
            b.element_type,
            LayoutEnum.from_tensor(a).mma_major_mode(),
            LayoutEnum.from_tensor(b).mma_major_mode(),
            self.sum_type,
            group,
            form.tile,
        )
        tiler = (*form.tile, cute.size(tiled_mma.shape_mnk, mode=[2]) * 4)
        a_smem = blackwell.make_smem_layout_a(tiled_mma, tiler, a.element_type, form.stages)
        b_smem = blackwell.make_smem_layout_b(tiled_mma, tiler, b.element_type, form.stages)
        shape = (*form.cluster, 1)
        cluster = cute.tiled_divide(cute.make_layout(shape), (tiled_mma.thr_id.shape,))
        tma_a, tensor_a = cute.nvgpu.make_tiled_tma_atom_A(
            blackwell.cluster_shape_to_tma_atom_A(form.cluster, tiled_mma.thr_id),
            a,
            cute.slice_(a_smem, (None, None, None, 0)),
            tiler,
            tiled_mma,
            cluster.shape,
        )
        tma_b, tensor_b = cute.nvgpu.make_tiled_tma_atom_B(
            blackwell.cluster_shape_to_tma_atom_B(form.cluster, tiled_mma.thr_id),
            b,
            cute.slice_(b_smem, (None, None, None, 0)),
            tiler,
            tiled_mma,
            cluster.shape,
        )
        pair = cute.size(tiled_mma.thr_id.shape)
        tiles = (cute.ceil_div(d.shape[0], tiler[0]) * pair, cute.ceil_div(d.shape[1], tiler[1]))
        grid = cute.round_up((*tiles, 1), shape)
        sizes = (d.shape[0], d.shape[1], d.stride[0])
        self.kernel(
            tma_a, tensor_a, tma_b, tensor_b, d.iterator, sizes, tiled_mma, tiler, a_smem, b_smem, cluster
        ).launch(grid=grid, block=(192, 1, 1), cluster=shape, stream=stream)

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
        tiler: cutlass.Constexpr,
        a_smem: cute.ComposedLayout,
        b_smem: cute.ComposedLayout,
        cluster: cute.Layout,
    ) -> None:
        form = self.form
        d = cute.make_tensor(d_pointer, cute.make_layout(d_sizes[:2], stride=(d_sizes[2], 1)))
        thread, _, _ = cute.arch.thread_idx()
        block_m, block_n, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        pair = cute.size(tiled_mma.thr_id.shape)
        half = block_m % pair
        tile_m = block_m // pair
        leads = half == 0
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        place = cluster.get_flat_coord(rank)

        if warp == TMA_WARP:
            cpasync.prefetch_descriptor(tma_a)
            cpasync.prefetch_descriptor(tma_b)

        smem = SmemAllocator()
        ring_barriers = smem.allocate_array(cutlass.Int64, num_elems=2 * form.stages)
        sum_barriers = smem.allocate_array(cutlass.Int64, num_elems=2)
        s_a = smem.allocate_tensor(self.dtype, a_smem.outer, byte_alignment=1024, swizzle=a_smem.inner)
        s_b = smem.allocate_tensor(self.dtype, b_smem.outer, byte_alignment=1024, swizzle=b_smem.inner)
        stage_bytes = cute.size_in_bytes(self.dtype, cute.slice_(a_smem, (None, None, None, 0)))
        stage_bytes += cute.size_in_bytes(self.dtype, cute.slice_(b_smem, (None, None, None, 0)))
        sharers = cute.size(cluster.shape[1]) + cute.size(cluster.shape[2]) - 1
        ring = pipeline.PipelineTmaUmma.create(
            num_stages=form.stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, sharers),
            tx_count=stage_bytes * pair,
            barrier_storage=ring_barriers,
            cta_layout_vmnk=cluster,
            defer_sync=True,
        )
        sums_ready = pipeline.PipelineUmmaAsync.create(
            num_stages=1,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, EPILOGUE_WARPS * pair),
            barrier_storage=sum_barriers,
            cta_layout_vmnk=cluster,
            defer_sync=True,
        )
        tensor_memory = TmemAllocator(
            barrier_for_retrieve=pipeline.NamedBarrier(barrier_id=1, num_threads=32 * (EPILOGUE_WARPS + 1)),
            allocator_warp_id=0,
            is_two_cta=form.pair,
        )
        pipeline.pipeline_init_arrive(cluster_shape_mn=form.cluster, is_relaxed=True)
        pipeline.pipeline_init_wait(cluster_shape_mn=form.cluster)

        of_block = tiled_mma.get_slice(half)
        g_a = cute.local_tile(tensor_a, cute.slice_(tiler, (None, 0, None)), (None, None))
        g_b = cute.local_tile(tensor_b, cute.slice_(tiler, (0, None, None)), (None, None))
        part_a, part_b = of_block.partition_A(g_a), of_block.partition_B(g_b)
        k_tiles = cute.size(g_a, mode=[3])
        sum_shape = tiled_mma.partition_shape_C(form.tile)
        sum_layout = tiled_mma.make_fragment_C(sum_shape)

        if warp == TMA_WARP:
            to_a, from_a = cpasync.tma_partition(
                tma_a,
                place[2],
                cute.make_layout(cute.slice_(cluster, (0, 0, None, 0)).shape),
                cute.group_modes(s_a, 0, 3),
                cute.group_modes(part_a, 0, 3),
            )
            to_b, from_b = cpasync.tma_partition(
                tma_b,
                place[1],
                cute.make_layout(cute.slice_(cluster, (0, None, 0, 0)).shape),
                cute.group_modes(s_b, 0, 3),
                cute.group_modes(part_b, 0, 3),
            )
            a_mask = b_mask = None
            if cutlass.const_expr(form.pair or form.cluster != (1, 1)):
                a_mask = cpasync.create_tma_multicast_mask(cluster, place, mcast_mode=2)
                b_mask = cpasync.create_tma_multicast_mask(cluster, place, mcast_mode=1)
            filling = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, form.stages)
            for k in cutlass.range(k_tiles, unroll=1):
                ring.producer_acquire(filling)
                full = ring.producer_get_barrier(filling)
                cute.copy(
                    tma_a, from_a[None, tile_m, k], to_a[None, filling.index], tma_bar_ptr=full, mcast_mask=a_mask
                )
                cute.copy(
                    tma_b, from_b[None, block_n, k], to_b[None, filling.index], tma_bar_ptr=full, mcast_mask=b_mask
                )
                filling.advance()
            ring.producer_tail(filling)

        if warp == MMA_WARP:
            tensor_memory.wait_for_alloc()
            sums = cute.make_tensor(tensor_memory.retrieve_ptr(self.sum_type), sum_layout.layout)
            r_a, r_b = tiled_mma.make_fragment_A(s_a), tiled_mma.make_fragment_B(s_b)
            reading = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, form.stages)
            done = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 1)
            if leads:
                sums_ready.producer_acquire(done)
                tiled_mma.set(tcgen05.Field.ACCUMULATE, False)
                for _ in cutlass.range(k_tiles, unroll=1):
                    ring.consumer_wait(reading)
                    for step_k in cutlass.range_constexpr(cute.size(r_a, mode=[2])):
                        at = (None, None, step_k, reading.index)
                        cute.gemm(tiled_mma, sums, r_a[at], r_b[at], sums)
                        tiled_mma.set(tcgen05.Field.ACCUMULATE, True)
                    ring.consumer_release(reading)
                    reading.advance()
                sums_ready.producer_commit(done)
            done.advance()
            sums_ready.producer_tail(done)

        if warp < EPILOGUE_WARPS:
            tensor_memory.allocate(blackwell.get_num_tmem_alloc_cols(sum_layout))
            tensor_memory.wait_for_alloc()
            pointer = tensor_memory.retrieve_ptr(self.sum_type)
            sums = cute.make_tensor(pointer, sum_layout.layout)
            waiting = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 1)
            sums_ready.consumer_wait(waiting)
            rows = form.tile[0] // pair
            # The DSL chooses the instruction's shape; the sums of 64 rows lie in halves, or in 16 lanes of each quarter.
            of_half = (rows, form.tile[1], tiler[2])
            piece = blackwell.compute_epilogue_tile_shape(of_half, form.pair, LayoutEnum.ROW_MAJOR, d.element_type)
            load = blackwell.get_tmem_load_op(
                of_half, LayoutEnum.ROW_MAJOR, d.element_type, self.sum_type, piece, form.pair
            )
            tmem = cute.flat_divide(sums[(None, None), 0, 0], piece)
            copy = tcgen05.make_tmem_copy(load, tmem[None, None, 0, 0])
            mine = copy.get_slice(thread)
            taken = mine.partition_S(tmem)
            names = cute.local_tile(cute.make_identity_tensor(d.shape), (rows, form.tile[1]), (block_m, block_n))
            named = mine.partition_D(cute.flat_divide(names, piece))
            out = mine.partition_D(
                cute.flat_divide(cute.local_tile(d, (rows, form.tile[1]), (block_m, block_n)), piece)
            )
            values = cute.make_rmem_tensor(named[None, None, None, 0, 0].shape, self.sum_type)
            taken, named, out = (cute.group_modes(one, 3, 5) for one in (taken, named, out))
            for step in cutlass.range_constexpr(cute.size(named, mode=[3])):
                cute.copy(copy, taken[None, None, None, step], values)
                for i in cutlass.range_constexpr(cute.size(values)):
                    name = named[None, None, None, step][i]
                    if cute.elem_less(name, d.shape):
                        out[None, None, None, step][i] = values[i].to(d.element_type)
            with cute.arch.elect_one():
                sums_ready.consumer_release(waiting)
            tensor_memory.relinquish_alloc_permit()
            # Warp 0 gives the columns back that all four have read.
            pipeline.NamedBarrier(barrier_id=2, num_threads=32 * EPILOGUE_WARPS).arrive_and_wait()
            tensor_memory.free(pointer)


class CompiledBlackwellGemm:
    """A form compiled for operands of one type and majors "k" or "m"/"n"; D lies row by row."""

    def __init__(
        self,
        folder: Path,
        form: BlackwellForm,
        dtype: str,
        d_dtype: str = "bf16",
        a_major: str = "k",
        b_major: str = "k",
    ) -> None:
        with compiling_for("sm_100a"):
            compiled = cute.compile(
                BlackwellGemm(form, cutlass.Int32 if d_dtype == "s32" else cutlass.Float32),
                _any_matrix(_TYPES[dtype], a_major == "k"),
                _any_matrix(_TYPES[dtype], b_major == "k"),
                _any_matrix(_TYPES[d_dtype], True),
                cutlass.Int32(1),
                make_fake_stream(use_tvm_ffi_env_stream=True),
                options="--enable-tvm-ffi",
            )
            self._host = HostFunction(compiled, folder)

    def launch(self, a: DeviceTensor, b: DeviceTensor, d: DeviceTensor, clusters: int) -> Launch:
        """The launch for operands (M, K), (N, K), (M, N)."""
        return self._host.launch(a, b, d, clusters)
