"""cuBLASLt: the calls have the parameters of cublasLt.h in its order, and the matrices the meaning that we give them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stridewright.codegen import cublaslt
from stridewright.codegen.cublaslt import Algorithm, CublasLtError, CublasLtGemm, heuristics


def address(value: Any) -> int:
    """What a pointer argument points to, as a number."""
    if isinstance(value, int):
        return value
    if isinstance(value, ctypes.c_void_p):
        return value.value or 0
    return ctypes.addressof(value._obj)


class FakeLibrary:
    """Keeps descriptors as dictionaries and multiplies with numpy what cublasLtMatmul is told to."""

    def __init__(self, gpu: Any) -> None:
        self.gpu = gpu
        self.objects: dict[int, dict[Any, int]] = {}
        self.destroyed: list[int] = []
        self.proposals = 3
        self.fail = 0
        for name in cublaslt._SIGNATURES:
            if "Destroy" in name:
                setattr(self, name, lambda made: self.destroyed.append(address(made)) or 0)

    def _make(self, out: Any, **values: int) -> int:
        number = 100 + len(self.objects)
        self.objects[number] = dict(values)
        out._obj.value = number
        return 0

    def _set(self, made: Any, attribute: int, value: Any, size: int) -> int:
        assert size == ctypes.sizeof(value._obj)
        self.objects[address(made)][attribute] = value._obj.value
        return 0

    def cublasLtCreate(self, out: Any) -> int:
        return self._make(out)

    def cublasLtMatmulDescCreate(self, out: Any, compute: int, scale: int) -> int:
        return self._make(out, compute=compute, scale=scale)

    def cublasLtMatrixLayoutCreate(self, out: Any, kind: int, rows: int, columns: int, leading: int) -> int:
        return self._make(out, kind=kind, rows=rows, columns=columns, leading=leading)

    def cublasLtMatmulPreferenceCreate(self, out: Any) -> int:
        return self._make(out)

    def cublasLtMatmulDescSetAttribute(self, *given: Any) -> int:
        return self._set(*given)

    def cublasLtMatmulPreferenceSetAttribute(self, *given: Any) -> int:
        return self._set(*given)

    def cublasLtMatmulAlgoGetHeuristic(self, *given: Any) -> int:
        _, operation, a, b, c, d, preference, most, results, count = given
        if self.fail:
            return self.fail
        assert address(c) == address(d)
        self.asked = [self.objects[address(one)] for one in (operation, a, b, d, preference)]
        for place in range(min(self.proposals, most)):
            results[place].algo.data[0] = 900 + place
            results[place].workspace_size = 1000 * place
            results[place].waves_count = 0.5
            results[place].state = 15 if place == 1 else 0
        count._obj.value = min(self.proposals, most)
        return 0

    def cublasLtMatmulAlgoConfigGetAttribute(
        self, algo: Any, attribute: int, value: Any, size: int, written: Any
    ) -> int:
        # cublasLt.h: cluster and inner shape are uint16_t, the others 32 bits wide.
        assert size == (2 if attribute in (7, 8) else 4)
        value._obj.value = 10 + attribute
        return 0

    def cublasLtMatmul(self, *given: Any) -> int:
        (_, operation, alpha, a, of_a, b, of_b, beta, c, of_c, d, of_d, algo, workspace, size, stream) = given
        assert (alpha._obj.value, beta._obj.value) == (1.0, 0.0)
        assert (workspace, size, stream) == (4321, 32 * 2**20, self.gpu.stream.ptr)
        assert (c, address(of_c)) == (d, address(of_d))
        self.algorithm = algo._obj.data[0]
        turned = self.objects[address(operation)]

        def column_major(pointer: int, layout: Any) -> np.ndarray[Any, Any]:
            of = self.objects[address(layout)]
            flat = self.gpu.memory[pointer].reshape(-1)
            columns = [flat[column * of["leading"] :][: of["rows"]] for column in range(of["columns"])]
            return np.stack(columns, axis=1).astype(np.float64)

        first, second = column_major(a, of_a), column_major(b, of_b)
        # cublasLt.h: attribute 3 is TRANSA, 4 TRANSB; cublas_api.h: 1 is CUBLAS_OP_T.
        product = (first.T if turned[3] == 1 else first) @ (second.T if turned[4] == 1 else second)
        out = self.gpu.memory[d]
        out.reshape(-1)[...] = product.T.reshape(-1).astype(out.dtype)
        return 0

    def cublasLtGetStatusName(self, status: int) -> bytes:
        return {15: b"CUBLAS_STATUS_NOT_SUPPORTED"}.get(status, b"?")


@pytest.fixture
def lib(fake_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLibrary]:
    made = FakeLibrary(fake_gpu)
    fake_gpu.cupy.cuda.alloc = lambda size: SimpleNamespace(ptr=4321)
    monkeypatch.setattr(cublaslt, "library", lambda: made)
    caches = (cublaslt._handle, cublaslt._workspace)
    for cache in caches:
        cache.cache_clear()
    yield made
    for cache in caches:
        cache.cache_clear()


def test_results_have_the_size_of_the_header() -> None:
    # cublasLt.h: eight 64-bit words, a size_t, a status, a float and four ints.
    assert ctypes.sizeof(cublaslt._HeuristicResult) == 64 + 8 + 4 + 4 + 16


def test_matmul_has_the_sixteen_parameters_of_the_header() -> None:
    assert len(cublaslt._SIGNATURES["cublasLtMatmul"]) == 16
    assert len(cublaslt._SIGNATURES["cublasLtMatmulAlgoGetHeuristic"]) == 10


def test_heuristic_is_asked_for_our_product_in_column_major_terms(lib: FakeLibrary) -> None:
    found = heuristics(512, 256, 128, most=8)
    operation, a, b, d, preference = lib.asked
    assert (operation["compute"], operation["scale"], operation[3], operation[4]) == (68, 0, 1, 0)
    assert a == {"kind": 14, "rows": 128, "columns": 256, "leading": 128}
    assert b == {"kind": 14, "rows": 128, "columns": 512, "leading": 128}
    assert d == {"kind": 14, "rows": 256, "columns": 512, "leading": 256}
    assert preference == {1: 32 * 2**20}
    # The second is refused on this device; the list goes on without it.
    assert [one.words[0] for one in found] == [900, 902]
    assert [one.place for one in found] == [0, 1]
    assert dict(found[0].settings) == {
        "id": 10,
        "tile": 11,
        "split_k": 12,
        "reduction": 13,
        "swizzle": 14,
        "custom": 15,
        "stages": 16,
        "inner_shape": 17,
        "cluster": 18,
    }


def test_descriptors_are_destroyed(lib: FakeLibrary) -> None:
    heuristics(8, 8, 8)
    assert len(lib.destroyed) == 5


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_a_launch_multiplies_a_by_b_transposed(lib: FakeLibrary, fake_gpu: Any, dtype: str) -> None:
    from stridewright.codegen.gpu_values import check_on_gpu, random_buffers

    buffers = random_buffers(5, 7, 24, dtype)
    gemm = CublasLtGemm(5, 7, 24, heuristics(5, 7, 24, dtype)[1], dtype)
    (launch,) = gemm.launches([buffers])
    launch(fake_gpu.stream)
    assert lib.algorithm == 902
    assert check_on_gpu(buffers, dtype).passed


def test_a_refusal_names_call_and_problem(lib: FakeLibrary) -> None:
    lib.fail = 15
    with pytest.raises(CublasLtError, match=r"AlgoGetHeuristic failed: CUBLAS_STATUS_NOT_SUPPORTED.*m=8, n=16, k=32"):
        heuristics(8, 16, 32)
    lib.fail, lib.proposals = 0, 0
    with pytest.raises(CublasLtError, match="no algorithm for m=8"):
        heuristics(8, 16, 32)
    with pytest.raises(CublasLtError, match="dtype='f64'"):
        heuristics(8, 16, 32, "f64")


def test_names_show_what_differs() -> None:
    algorithm = Algorithm(0, 0, 1.0, (("id", 66), ("split_k", 4), ("reduction", 0), ("cluster", 2)), (0,) * 8)
    assert algorithm.name == "cublaslt0_id66_split_k4_cluster2"


def test_a_missing_library_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    cublaslt.library.cache_clear()
    monkeypatch.setattr(cublaslt, "_candidates", lambda: iter(["libcublasLt-none.so.13"]))
    with pytest.raises(CublasLtError, match="pip install 'nvidia-cublas"):
        cublaslt.library()
    cublaslt.library.cache_clear()


def test_the_installed_library_reads_the_descriptors_as_meant() -> None:
    """Without a GPU: cuBLASLt's own getters, on the descriptors that were made."""
    cublaslt.library.cache_clear()
    try:
        lib = cublaslt.library()
    except CublasLtError:
        pytest.skip("cuBLASLt is not installed")
    made = cublaslt._Descriptors(512, 256, 128, "bf16")

    def get(call: str, of: Any, attribute: int, kind: Any) -> int:
        value, written = kind(), ctypes.c_size_t()
        function = getattr(lib, call)
        function.argtypes = cublaslt._SIGNATURES["cublasLtMatmulAlgoConfigGetAttribute"]
        function.argtypes = (ctypes.c_void_p, *function.argtypes[1:])
        assert function(of, attribute, ctypes.byref(value), ctypes.sizeof(value), ctypes.byref(written)) == 0
        return int(value.value)

    # cublasLt.h: 0 compute type, 3 and 4 the transpositions; of a layout 2 rows, 3 columns, 4 leading dimension.
    operation = [get("cublasLtMatmulDescGetAttribute", made.operation, which, ctypes.c_int32) for which in (0, 3, 4)]
    assert operation == [68, 1, 0]
    for layout, sizes in ((made.b, [128, 256, 128]), (made.a, [128, 512, 128]), (made.d, [256, 512, 256])):
        assert [get("cublasLtMatrixLayoutGetAttribute", layout, which, ctypes.c_int64) for which in (2, 3, 4)] == sizes
    assert get("cublasLtMatmulPreferenceGetAttribute", made.preference(1 << 25), 1, ctypes.c_uint64) == 1 << 25
