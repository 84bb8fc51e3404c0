"""The launcher, compiled by g++ against a stand-in for the CUDA runtime that records what it is asked for."""

import itertools
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from tests.emit.fixtures_plan import K, M, N, c, gemm_plan, launch, odd_plan, variant
from tilec.emit.header import header_text
from tilec.emit.hosteval import evaluate
from tilec.emit.launcher import launcher_text
from tilec.emit.manifest import comment, manifest, parse
from tilec.emit.render import indent, render

RUNTIME = """
#include <cstddef>
#include <cstdio>
#include <cstring>
typedef enum { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9, cudaErrorMisalignedAddress = 716 } cudaError_t;
typedef struct CUstream_st* cudaStream_t;
enum { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
struct dim3 { unsigned x, y, z; dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {} };
struct cudaLaunchConfig_t { dim3 gridDim, blockDim; size_t dynamicSmemBytes = 0; cudaStream_t stream = nullptr; };
inline const char* name_of(const void* kernel);
inline int raised = 0;
inline cudaError_t cudaFuncSetAttribute(const void*, int, int bytes) { raised = bytes; return cudaSuccess; }
inline int last_args(void** args);
inline cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* l, const void* kernel, void** args) {
  std::printf("%s %u %u %u %u %zu %d %d;", name_of(kernel), l->gridDim.x, l->gridDim.y, l->gridDim.z, l->blockDim.x, l->dynamicSmemBytes, raised,
              last_args(args));
  return cudaSuccess;
}
"""
GEMM = """
extern "C" void matmul() {}
extern "C" void matmul__general() {}
inline const char* name_of(const void* k) { return k == (const void*)matmul ? "matmul" : "matmul__general"; }
inline int last_args(void** args) { return *static_cast<int*>(args[5]); }
"""
GEMM_MAIN = """
int main() {
  long long a, b, c; int m, n, k;
  while (std::scanf("%lld %lld %lld %d %d %d", &a, &b, &c, &m, &n, &k) == 6) {
    raised = 0;
    std::printf(" %d\\n", matmul_launch((void*)a, (void*)b, (void*)c, m, n, k, nullptr));
  }
}
"""


def build(folder: Path, gxx: str, text: str) -> Path:
    (folder / "t.cpp").write_text(text)
    subprocess.run([gxx, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "t.cpp", "-o", "t"], cwd=folder, check=True)
    return folder / "t"


def test_it_chooses_refuses_and_launches_as_the_manifest_says(tmp_path: Path, require_tool) -> None:
    plan = gemm_plan()
    program = build(tmp_path, require_tool("g++"), RUNTIME + GEMM + launcher_text(render, plan) + GEMM_MAIN)
    addresses = [(256, 512, 768), (256, 520, 768), (257, 512, 768), (256, 512, 770), (0, 0, 0)]
    sizes = [(128, 128, 32), (130, 72, 40), (1, 1, 1), (0, 8, 8), (64, 64, 0), (-1, 8, 8), (64, 8, 4097), (1 << 24, 8, 8), (64, 64, 36)]
    calls = list(itertools.product(addresses, sizes))
    feed = "\n".join(" ".join(map(str, (*a, *s))) for a, s in calls)
    lines = subprocess.run([program], input=feed, capture_output=True, text=True, check=True).stdout.splitlines()
    kernel = manifest([plan])["kernels"][0]
    assert len(lines) == len(calls)
    for (address, size), line in zip(calls, lines, strict=True):
        assert line == expected(kernel, dict(zip("ABC", address, strict=True)), dict(zip("MNK", size, strict=True))), (address, size)


def expected(kernel, address: dict[str, int], size: dict[str, int]) -> str:
    """What the stand-in prints if the launcher does what the manifest tells a Python loader to do."""
    env = {**address, **size}
    if min(size.values()) < 0 or not all(evaluate(c["holds"], env) for c in kernel["checks"]):
        return " 1"
    if any(address[p["name"]] % {"float16": 2, "float32": 4}[p["dtype"]] for p in kernel["params"]):
        return " 716"
    chosen = next(v for v in kernel["launches"][0]["variants"] if evaluate(v["when"], env))
    grid = [evaluate(g, env) for g in chosen["grid"]]
    if grid[1] > 65535:
        return " 9"
    if 0 in grid:
        return " 0"
    return f"{chosen['symbol']} {' '.join(map(str, grid))} {chosen['block'][0]} {chosen['shared_bytes']} {chosen['shared_bytes']} {size['K']}; 0"


def test_several_launches_run_in_order_and_empty_ones_are_skipped(tmp_path: Path, require_tool) -> None:
    kernels = """
extern "C" void double_kernel() {}
extern "C" void double_kernel__1() {}
inline const char* name_of(const void* k) { return k == (const void*)double_kernel ? "first" : "second"; }
inline int last_args(void** args) { return *static_cast<unsigned short*>(args[2]) + (*static_cast<void**>(args[5]) != nullptr); }
"""
    main = """
int main() {
  float x[4];
  std::printf(" %d\\n", double_kernel_launch(true, x, 7, 2, 9, x, nullptr));
  std::printf(" %d\\n", double_kernel_launch(true, x, 7, 100, 9, x, nullptr));
  std::printf(" %d\\n", double_kernel_launch(true, x, 7, 2, 2, x, nullptr));
  std::printf(" %d\\n", double_kernel_launch(true, x, 7, 0, 9, x, nullptr));
  std::printf("%zu %zu\\n", double_kernel_workspace(1, 9), double_kernel_workspace(1, -9));
}
"""
    program = build(tmp_path, require_tool("g++"), RUNTIME + kernels + launcher_text(render, odd_plan()) + main)
    out = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    assert out == ["first 4 1 1 32 0 0 8;second 6 2 1 64 0 0 8; 0", "second 6 2 1 64 0 0 8; 0", "first 1 1 1 32 0 0 8; 1", " 1", "36 0"]


def test_no_scratch_memory_is_asked_for_where_none_is_needed(tmp_path: Path, require_tool) -> None:
    plan = odd_plan()
    kernels = """
extern "C" void double_kernel() {}
inline const char* name_of(const void*) { return "first"; }
inline int last_args(void**) { return 0; }
"""
    main = """
int main() {
  float x[4];
  for (int m = 0; m < 10; m += 9) std::printf(" %d\\n", double_kernel_launch(true, x, 7, 2, m, nullptr, nullptr));
}
"""
    text = launcher_text(render, replace(plan, launches=plan.launches[:1]))
    out = subprocess.run([build(tmp_path, require_tool("g++"), RUNTIME + kernels + text + main)], capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == [" 0", " 1"]


def test_a_lone_variant_with_a_condition_refuses_what_it_cannot_do(tmp_path: Path, require_tool) -> None:
    plan = gemm_plan()
    only = replace(plan.launches[0], variants=plan.launches[0].variants[:1])
    text = launcher_text(render, replace(plan, launches=(only,), checks=()))
    program = build(tmp_path, require_tool("g++"), RUNTIME + GEMM + text + GEMM_MAIN)
    out = subprocess.run([program], input="256 512 768 64 64 64\n256 520 768 64 64 64\n", capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == ["matmul 1 1 1 128 65536 65536 64; 0", " 716"]


def test_fixed_sizes_leave_a_plain_launch() -> None:
    plan = gemm_plan()
    fixed = replace(plan, launches=(launch((c(32), c(16), c(1)), variant("matmul", None, 1024)),), checks=())
    text = indent(launcher_text(render, fixed))
    assert "dim3(32, 16, 1)" in text and "cudaFuncSetAttribute" not in text and "grid_x" not in text and "if (" in text


def test_a_grid_that_is_always_empty_launches_nothing() -> None:
    plan = replace(gemm_plan(), launches=(launch((c(0), c(16), c(1)), variant("matmul", None, 0)),))
    text = launcher_text(render, plan)
    assert "cudaLaunchKernelExC" not in text and "return cudaSuccess;" in text


def test_the_header_compiles_as_c_and_as_cpp_and_twice(tmp_path: Path, require_tool) -> None:
    (tmp_path / "cuda_runtime.h").write_text("#include <stddef.h>\ntypedef enum { cudaSuccess } cudaError_t;\ntypedef struct CUstream_st* cudaStream_t;\n")
    text = header_text(render, [gemm_plan(), odd_plan()], "gemm.py")
    assert text.endswith("\n") and "workspace: double_kernel_workspace(...) bytes" in text
    (tmp_path / "k.h").write_text(text)
    for tool, file in (("gcc", "t.c"), ("g++", "t.cpp")):
        call = "matmul_launch(0, 0, 0, 1, 1, 1, 0); double_kernel_launch(1, 0, 1, 1, 1, 0, 0); (void)double_kernel_workspace(1, 1);"
        (tmp_path / file).write_text(f'#include "k.h"\n#include "k.h"\nvoid f(void) {{ {call} }}\n')
        subprocess.run([require_tool(tool), "-Wall", "-Wpedantic", "-Werror", "-I.", "-fsyntax-only", file], cwd=tmp_path, check=True)


@pytest.mark.parametrize("plans", [[gemm_plan()], [gemm_plan(), odd_plan()], []], ids=["one", "two", "none"])
def test_the_manifest_survives_its_comment_and_fits_its_schema(plans) -> None:
    import tilec

    data = manifest(plans)
    text = f"#include <x>\n{comment(data)}\nint x;\n"
    assert parse(text) == data
    assert all(line.startswith("// ") and len(line) <= 150 for line in comment(data).splitlines())
    schema = json.loads((Path(tilec.__file__).parent / "manifest.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(data, schema)


def test_the_manifest_tells_roles_order_and_the_authors_name() -> None:
    gemm, odd = manifest([gemm_plan(), odd_plan()])["kernels"]
    assert [(p["name"], p["role"]) for p in gemm["params"]] == [("A", "in"), ("B", "in"), ("C", "out")]
    assert [e["name"] for e in gemm["extents"]] == [v.name for v in (M, N, K)]
    assert gemm["launches"][0]["variants"][0]["args"] == ["A", "B", "C", "M", "N", "K"]
    assert odd["name"] == "double" and odd["symbol"] == "double_kernel" and "name" not in gemm
    assert [p["role"] for p in odd["params"]] == ["scalar", "out", "scalar", "scalar"]


@pytest.mark.parametrize("text", ["", "// tilec-manifest-begin\n// {}", "// tilec-manifest-begin\n// {\n// tilec-manifest-end\n",
                                  '// tilec-manifest-begin\n// {"version": 2, "kernels": []}\n// tilec-manifest-end\n'])  # fmt: skip
def test_a_file_without_a_manifest_is_told_apart(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)
