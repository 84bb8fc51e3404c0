"""Runs every wrapper of the prelude once on a GPU and once on the emulator, on the same random data, and compares.

    python benchmarks/gpu_twins.py [NAME ...] [--seed N]

needs CuPy and a GPU of sm_80 or newer (sm_89 for the fp8 mma). Prints a line a case and ends with 1 if any differs.
Each case is a small file in the form of a generated one: both sides build the same text.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tilec import emulator
from tilec.emit import prelude

Words = npt.NDArray[np.uint32]
Data = Callable[[np.random.Generator], Words]


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison: the kernel's body reads `input` and writes `output`, arrays of 32-bit words, with `thread` at hand.

    `read` says how the output's words are compared: "u4" exactly, "f4" or "f2" as floats within `tolerance`.
    """

    name: str
    needs: tuple[str, ...]
    body: str
    data: Data
    output_words: int
    threads: int = 32
    shared_bytes: int = 0
    read: str = "u4"
    tolerance: float = 0.0
    capability: int = 80


def file_text(case: Case) -> str:
    """The .cu of a case."""
    words = len(case.data(np.random.default_rng(0)))
    variant = {"symbol": "twin", "arch": "sm_80", "when": "1", "args": ["input", "output"], "grid": ["1", "1", "1"],
               "block": [case.threads, 1, 1], "shared_bytes": case.shared_bytes}  # fmt: skip
    params = [{"name": "input", "dtype": "uint32", "shape": [str(words)], "role": "in"},
              {"name": "output", "dtype": "uint32", "shape": [str(case.output_words)], "role": "inout"}]  # fmt: skip
    kernel = {"symbol": "twin", "params": params, "extents": [], "workspace": "0", "launches": [{"variants": [variant]}]}
    return f"""// {case.name}
// tilec-manifest-begin
// {json.dumps({"version": 1, "kernels": [kernel]})}
// tilec-manifest-end
#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

// ---- prelude
{prelude.select(case.needs)}
// ---- end of prelude

extern "C" __global__ void __launch_bounds__({case.threads})
twin(const unsigned* __restrict__ input, unsigned* __restrict__ output) {{
  const int thread = threadIdx.x;
{case.body}
}}

#ifndef __CUDACC_RTC__
extern "C" cudaError_t twin_launch(const void* input, void* output, cudaStream_t stream) {{
  const void* const kernel = reinterpret_cast<const void*>(twin);
  cudaLaunchConfig_t launch = {{}};
  launch.gridDim = dim3(1, 1, 1);
  launch.blockDim = dim3({case.threads}, 1, 1);
  launch.dynamicSmemBytes = {case.shared_bytes};
  launch.stream = stream;
  void* arguments[] = {{&input, &output}};
  return cudaLaunchKernelExC(&launch, kernel, arguments);
}}
#endif
"""


def random_words(count: int) -> Data:
    """Words with any bits."""
    return lambda rng: rng.integers(0, 2**32, count, dtype=np.uint32)


def packed(count: int, dtype: str) -> Data:
    """`count` words of normally distributed floats of a NumPy or ml_dtypes type."""

    def make(rng: np.random.Generator) -> Words:
        import ml_dtypes

        kind = np.dtype(getattr(ml_dtypes, dtype)) if hasattr(ml_dtypes, dtype) else np.dtype(dtype)
        return rng.standard_normal(count * 4 // kind.itemsize).astype(kind).view(np.uint32)

    return make


def joined(*parts: Data) -> Data:
    """The parts, one after the other."""
    return lambda rng: np.concatenate([part(rng) for part in parts])


def mma_case(name: str, operand: str, element: str, registers: int, read: str, tolerance: float, capability: int = 80) -> Case:
    """An mma: the input holds the lanes' a, b and d registers."""
    body = f"""  unsigned a[4], b[2];
  {element} d[{registers}];
  for (int i = 0; i < 4; ++i) a[i] = input[thread * 4 + i];
  for (int i = 0; i < 2; ++i) b[i] = input[128 + thread * 2 + i];
  for (int i = 0; i < {registers}; ++i) d[i] = reinterpret_cast<const {element}*>(input)[192 + thread * {registers} + i];
  {name}(d, a, b);
  for (int i = 0; i < {registers}; ++i) reinterpret_cast<{element}*>(output)[thread * {registers} + i] = d[i];"""
    operands = random_words(192) if operand == "int8" else packed(192, operand)
    accumulators = random_words(32 * registers) if element == "int" else packed(32 * registers, "float16" if read == "f2" else "float32")
    return Case(name, (name,), body, joined(operands, accumulators), 32 * registers, 32, 0, read, tolerance, capability)


def sparse_mma_case(name: str, operand: str, element: str = "float") -> Case:
    """A sparse mma: the input holds the lanes' a and both halves of b, then their d, then the marks of the lanes that have some."""
    lanes = 2 if element == "float" else 4
    body = f"""  unsigned a[4], b[4];
  {element} d[4];
  for (int i = 0; i < 4; ++i) a[i] = input[thread * 4 + i];
  for (int i = 0; i < 4; ++i) b[i] = input[128 + thread * 4 + i];
  for (int i = 0; i < 4; ++i) d[i] = reinterpret_cast<const {element}*>(input)[256 + thread * 4 + i];
  {name}(d, a, b, b + 2, thread % 4 < {lanes} ? input[384 + thread / 4 * {lanes} + thread % 4] : 0);
  for (int i = 0; i < 4; ++i) reinterpret_cast<{element}*>(output)[thread * 4 + i] = d[i];"""

    def marks(rng: np.random.Generator) -> Words:
        first = rng.integers(0, 3, (8 * lanes, 8))
        second = rng.integers(first + 1, 4)
        return ((first | second << 2) << (4 * np.arange(8))).sum(1).astype(np.uint32)

    if element == "int":
        return Case(name, (name,), body, joined(random_words(384), marks), 128)
    data = joined(joined(packed(256, operand), packed(128, "float32")), marks)
    return Case(name, (name,), body, data, 128, read="f4", tolerance=2e-5)


def ldmatrix_case(count: int, transposed: bool) -> Case:
    """An ldmatrix whose rows lie in a mixed order."""
    name = f"ldmatrix_x{count}" + ("_trans" if transposed else "")
    body = f"""  unsigned* const tile = shared_tile<unsigned, 128>(128);
  for (int i = 0; i < 4; ++i) tile[thread * 4 + i] = input[thread * 4 + i];
  __syncthreads();
  unsigned r[4] = {{}};
  {name}(r, tile + thread * 5 % 32 * 4);
  for (int i = 0; i < {count}; ++i) output[thread * {count} + i] = r[i];"""
    return Case(name, (name, "shared_tile"), body, random_words(128), 32 * count, shared_bytes=640)


def cp_async_case(bytes_: int, zfill: bool) -> Case:
    """Asynchronous copies, some of them out of range; two groups."""
    name = f"cp_async_{bytes_}" + ("_zfill" if zfill else "")
    words, extra = bytes_ // 4, ", thread % 3 != 0" if zfill else ""
    body = f"""  unsigned* const tile = shared_tile<unsigned, {64 * words}>(0);
  {name}(tile + thread * {words}, input + thread * {words}{extra});
  cp_async_commit();
  {name}(tile + {32 * words} + thread * {words}, input + {32 * words} + (31 - thread) * {words}{extra});
  cp_async_commit();
  cp_async_wait<1>();
  for (int i = 0; i < {words}; ++i) output[thread * {words} + i] = tile[thread * {words} + i];
  cp_async_wait<0>();
  __syncthreads();
  for (int i = 0; i < {words}; ++i) output[{32 * words} + thread * {words} + i] = tile[{32 * words} + (31 - thread) * {words} + i];"""
    needs = (name, "shared_tile", "cp_async_commit", "cp_async_wait")
    return Case(name, needs, body, random_words(64 * words), 64 * words, shared_bytes=256 * words)


def shuffle_case(name: str, element: str, argument: str) -> Case:
    """A shuffle of elements of one type."""
    needs = (name, *((element,) if element == "half_t" else ()))
    body = f"""  const {element} v = reinterpret_cast<const {element}*>(input)[thread];
  reinterpret_cast<{element}*>(output)[thread] = {name}(v, {argument});"""
    return Case(f"{name}<{element}>", needs, body, random_words(64), 64)


def unary_case(name: str, entry: str, source: str, result: str, data: Data, count: int = 512) -> Case:
    """A conversion, element by element."""
    types = tuple(t for t in (source, result) if t in prelude.entries())
    body = f"""  for (int i = thread; i < {count}; i += 32)
    reinterpret_cast<{result}*>(output)[i] = {name}(reinterpret_cast<const {source}*>(input)[i]);"""
    return Case(f"{name}({source})", (entry, *types), body, data, 2 * count)


INTEGERS = {"int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short", "int32": "int",
            "uint32": "unsigned", "int64": "long long", "uint64": "unsigned long long"}  # fmt: skip
FLOATS = {"float16": "half_t", "bfloat16": "bfloat16_t", "float32": "float", "float64": "double"}


def atomic_case(operation: str, dtype: str) -> Case:
    """32 lanes on 4 elements, whose results do not depend on the order; then each lane on its own, for the old value.

    The input is integers of -8 to 7, so that sums of floats are exact too.
    """
    element = (INTEGERS | FLOATS)[dtype]
    entry = prelude.atomic_entry(operation, dtype)
    from_int = {"half_t": "to_half(static_cast<float>(n))", "bfloat16_t": "to_bfloat16(static_cast<float>(n))"}.get(
        element, f"static_cast<{element}>(n)"
    )
    helpers = {"half_t": ("half_t", "to_half"), "bfloat16_t": ("bfloat16_t", "to_bfloat16")}.get(element, ())
    call = {"load": "atomic_load(cells + 4 + thread)", "cas": "atomic_cas(cells + 4 + thread, make(0), v)"}.get(
        operation, f"atomic_{operation}(cells + 4 + thread, v)"
    )
    together = f"  atomic_{operation}(cells + thread % 4, v);\n" if operation in ("add", "max", "min", "and", "or", "xor") else ""
    keep = f"  {call};" if operation == "store" else f"  cells[36 + thread] = {call};"
    body = f"""  const auto make = [](int n) {{ return {from_int}; }};
  {element}* const cells = reinterpret_cast<{element}*>(output);
  for (int i = thread; i < 68; i += 32) cells[i] = make(static_cast<int>(input[i] % 16) - 8);
  __syncthreads();
  const {element} v = make(static_cast<int>(input[68 + thread] % 16) - 8);
{together}{keep}"""
    return Case(f"{entry}<{dtype}>", (entry, *helpers), body, random_words(100), 136)


def chunk_add_case(dtype: str, count: int) -> Case:
    """32 lanes that add chunks of `count` to two places of the output: sums of integers of -8 to 7, exact in any order."""
    element = FLOATS[dtype]
    make = {"half_t": "to_half", "bfloat16_t": "to_bfloat16"}.get(element, "static_cast<float>")
    helpers = () if element == "float" else (make,)
    body = f"""  {element}* const cells = reinterpret_cast<{element}*>(output);
  for (int i = thread; i < {2 * count}; i += 32) cells[i] = {make}(static_cast<float>(i));
  __syncthreads();
  vec<{element}, {count}> v;
  for (int e = 0; e < {count}; ++e) v.v[e] = {make}(static_cast<float>(input[thread * {count} + e] % 16) - 8.0f);
  atomic_add_vec(cells + thread % 2 * {count}, v);"""
    words = 2 * count * (4 if element == "float" else 2) // 4
    needs = (f"atomic_add_vec_{dtype}", *helpers)
    return Case(f"atomic_add_vec<{count}>({dtype})", needs, body, random_words(32 * count), words, capability=90)


def cases() -> Iterable[Case]:
    """Every case."""
    for name, operand in (("mma_m16n8k16_f16_f32", "float16"), ("mma_m16n8k16_bf16_f32", "bfloat16"), ("mma_m16n8k8_tf32_f32", "float32")):
        yield mma_case(name, operand, "float", 4, "f4", 2e-5)
    yield mma_case("mma_m16n8k16_f16_f16", "float16", "unsigned", 2, "f2", 2e-3)
    yield mma_case("mma_m16n8k32_s8_s32", "int8", "int", 4, "u4", 0)
    yield mma_case("mma_m16n8k32_u8_s32", "int8", "int", 4, "u4", 0)
    yield mma_case("mma_m16n8k32_e4m3_f32", "float8_e4m3fn", "float", 4, "f4", 2e-3, 89)
    yield mma_case("mma_m16n8k32_e5m2_f32", "float8_e5m2", "float", 4, "f4", 2e-3, 89)
    yield sparse_mma_case("mma_sp_m16n8k32_f16_f32", "float16")
    yield sparse_mma_case("mma_sp_m16n8k32_bf16_f32", "bfloat16")
    yield sparse_mma_case("mma_sp_m16n8k64_s8_s32", "int8", "int")
    yield sparse_mma_case("mma_sp_m16n8k64_u8_s32", "int8", "int")
    for count in (1, 2, 4):
        yield ldmatrix_case(count, False)
        yield ldmatrix_case(count, True)
    for size in (4, 8, 16):
        yield cp_async_case(size, False)
        yield cp_async_case(size, True)
    for element in ("unsigned", "float", "double", "half_t", "signed char", "unsigned long long"):
        yield shuffle_case("shfl_xor", element, "5")
        yield shuffle_case("shfl_down", element, "3")
        yield shuffle_case("shfl_up", element, "7")
        yield shuffle_case("shfl_idx", element, "11")
    yield from exchange_cases()
    for dtype in (*INTEGERS, *FLOATS):
        bits = ("and", "or", "xor") if dtype in INTEGERS else ()
        for operation in ("add", "max", "min", *bits, "exch", "cas", "load", "store"):
            yield atomic_case(operation, dtype)
    for dtype, counts in (("float32", (2, 4)), ("float16", (2, 4, 8)), ("bfloat16", (2, 4, 8))):
        for count in counts:
            yield chunk_add_case(dtype, count)
    yield from conversion_cases()


def exchange_cases() -> Iterable[Case]:
    """Votes, barriers, vectors and shared addresses."""
    vote = "  output[thread * 2] = any_sync(input[thread] % 64 == 0);\n  output[thread * 2 + 1] = all_sync(input[thread] % 64 != 0);"
    yield Case("any_sync, all_sync", ("any_sync", "all_sync"), vote, random_words(32), 64)
    barrier = """  unsigned* const tile = shared_tile<unsigned, 64>(0);
  if (thread < 32) {
    tile[thread] = input[thread];
    barrier_arrive<1>(64);
    barrier_sync<2>(64);
    output[thread] = tile[32 + thread];
  } else {
    barrier_sync<1>(64);
    output[thread] = tile[63 - thread];
    tile[thread] = input[thread];
    barrier_arrive<2>(64);
  }
  block_sync();
  warp_sync();"""
    needs = ("barrier_arrive", "barrier_sync", "shared_tile", "block_sync", "warp_sync")
    yield Case("barrier_sync, barrier_arrive", needs, barrier, random_words(64), 64, threads=64, shared_bytes=256)
    vector = """  const auto v = load_vec<4>(input + (31 - thread) * 4);
  store_vec(output + thread * 4, v);"""
    yield Case("load_vec, store_vec", ("load_vec", "store_vec"), vector, random_words(128), 128)
    address = """  unsigned* const tile = shared_tile<unsigned, 32>(1024);
  output[thread] = shared_address(tile + thread) - shared_address(tile);"""
    yield Case("shared_address", ("shared_address", "shared_tile"), address, random_words(1), 32, shared_bytes=1152)


def conversion_cases() -> Iterable[Case]:
    """Conversions between element types, on random bits; NaN, infinities and denormals are among them."""
    known = prelude.entries()
    table = [("to_float", "to_float_half", "half_t", "float"), ("to_float", "to_float_bfloat16", "bfloat16_t", "float"),
             ("to_float", "to_float_fp8_e4m3", "fp8_e4m3_t", "float"), ("to_float", "to_float_fp8_e5m2", "fp8_e5m2_t", "float"),
             ("to_half", "to_half", "float", "half_t"), ("to_bfloat16", "to_bfloat16", "float", "bfloat16_t"),
             ("to_fp8_e4m3", "to_fp8_e4m3", "float", "fp8_e4m3_t"), ("to_fp8_e5m2", "to_fp8_e5m2", "float", "fp8_e5m2_t")]  # fmt: skip
    for dtype, element in INTEGERS.items():
        table.append((f"to_{dtype}", f"to_{dtype}", "float", element))
        table.append((f"to_{dtype}", f"to_{dtype}_f64", "double", element))
    for name, entry, source, result in table:
        if entry in known:
            yield unary_case(name, entry, source, result, random_words(1024))
            if source == "float":
                yield unary_case(name, entry, source, result, lambda rng: (packed(1024, "float32")(rng).view("f4") * 100).view("u4"))


def run_emulated(case: Case, words: Words) -> Words:
    """The output of a case on the CPU; RuntimeError with the emulator's report if the run ends badly."""
    output = np.zeros(case.output_words, np.uint32)
    outcome = emulator.build(file_text(case)).run("twin", {"input": words, "output": output})
    if not outcome.ok:
        raise RuntimeError(f"{case.name}: {outcome.status}: {outcome.message}")
    return output


def run_on_gpu(case: Case, words: Words, cupy: Any) -> Words:
    """The output of a case on the GPU."""
    module = cupy.RawModule(code=file_text(case), options=("-std=c++17",))
    given, output = cupy.asarray(words), cupy.zeros(case.output_words, cupy.uint32)
    module.get_function("twin")((1,), (case.threads,), (given, output), shared_mem=case.shared_bytes)
    return np.asarray(cupy.asnumpy(output))


def difference(case: Case, gpu: Words, cpu: Words) -> float:
    """The largest difference over the largest magnitude; for "u4", the number of words that differ."""
    if case.read == "u4":
        return float(np.count_nonzero(gpu != cpu))
    a, b = gpu.view(case.read).astype(np.float64), cpu.view(case.read).astype(np.float64)
    return float(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-30))


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares all cases, or those whose name contains one of the given words."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args(arguments)
    import cupy

    capability = int(cupy.cuda.Device().compute_capability)
    rng = np.random.default_rng(options.seed)
    chosen = [c for c in cases() if not options.names or any(word in c.name for word in options.names)]
    fitting = [(case, case.data(rng)) for case in chosen if case.capability <= capability]
    failures = 0
    with ThreadPoolExecutor() as pool:
        emulated = pool.map(lambda pair: run_emulated(*pair), fitting)
        for (case, words), cpu in zip(fitting, emulated, strict=True):
            found = difference(case, run_on_gpu(case, words, cupy), cpu)
            good = found <= case.tolerance
            failures += not good
            print(f"{'equal  ' if good else 'DIFFERS'}  {case.name}: {found:.3g}", flush=True)
    for case in chosen:
        if case.capability > capability:
            print(f"skipped  {case.name}: needs sm_{case.capability}")
    print(f"{failures} cases differ" if failures else "no case differs")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
