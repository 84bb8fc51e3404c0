"""Complete little files around the text of one product, for the emulator and for nvcc.

    text = product_file(choose(GemmShape(64, 64, 32, FLOAT16, FLOAT16, FLOAT32), 128, SM80))
    one block: c += op(a) @ op(b), operands from global memory by plain loops, a step of k after the other where `steps` says so
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from tilec.emit import prelude
from tilec.emit.cliteral import ctype
from tilec.emit.gemm import gemm_text
from tilec.emit.gemm_operands import Operand, RegisterOperand, SharedOperand
from tilec.emit.pipeline import GemmInPipeline, PipelineText, pipeline_text
from tilec.emit.render import indent, render
from tilec.ir.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, DType
from tilec.layout.fragment import REPLICA, FragmentLayout
from tilec.layout.shared import SharedLayout, conflict_free
from tilec.plan.gemm_plan import GemmPlan

TYPES = {FLOAT16: "half_t", BFLOAT16: "bfloat16_t", FLOAT8_E4M3: "fp8_e4m3_t", FLOAT8_E5M2: "fp8_e5m2_t"}


@dataclass
class File:
    """A file in the making: prelude entries, helper functions, kernel statements, shared bytes used so far."""

    plan: GemmPlan
    stages: int = 1
    entries: set[str] = field(default_factory=lambda: {"shared_tile"})
    helpers: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    shared: int = 0

    def need(self, name: str) -> None:
        self.entries.add(name)

    def tile(self, name: str, shape: tuple[int, int], dtype: DType, margin: tuple[int, int] = (0, 0)) -> SharedLayout:
        """Declares a shared tile and its offset function; `margin` rows and columns lie in front of the operand."""
        layout = conflict_free((shape[0] + margin[0], shape[1] + margin[1]), dtype.bytes)
        self.helpers.append(offset_function(f"{name}_at", layout))
        self.shared = -(-self.shared // 1024) * 1024
        self.body.append(f"{ctype(dtype)}* const {name} = shared_tile<{ctype(dtype)}, {layout.elements * self.stages}>({self.shared});")
        self.shared += layout.bytes * self.stages
        return layout


def offset_function(name: str, layout: SharedLayout) -> str:
    """The C function from (row, column) to the element offset of a tile."""
    if layout.swizzle is None:
        return f"__device__ __forceinline__ int {name}(int row, int col) {{ return row * {layout.pitch} + col; }}"
    per = 16 // layout.itemsize
    rows = max(1, (1 << layout.swizzle.shift) * per // layout.pitch)
    mix = f"(row / {rows} % {layout.swizzle.mask + 1})"
    return f"__device__ __forceinline__ int {name}(int row, int col) {{ return row * {layout.pitch} + ((col / {per}) ^ {mix}) * {per} + col % {per}; }}"


def places(layout: FragmentLayout) -> list[tuple[str, str, str]]:
    """Per register: row, column, and the condition that they lie in the tile ("" when they always do)."""
    parts: list[list[str]] = [[], []]
    place = 1
    for d in layout.thread:
        if d.dim != REPLICA:
            parts[d.dim].append(f"thread / {place} % {d.size} * {d.stride}")
        place *= d.size
    base = [" + ".join(p) or "0" for p in parts]
    tests = [f"{{}} < {layout.shape[d]}" for d in range(2) if layout.padded(d) > layout.shape[d]]
    out = []
    for r in range(layout.registers):
        offset, value = [0, 0], r
        for digit in layout.regs:
            offset[digit.dim] += value % digit.size * digit.stride
            value //= digit.size
        at = [f"({base[d]} + {offset[d]})" for d in range(2)]
        checks = [t.format(at[d]) for d, t in zip([d for d in range(2) if layout.padded(d) > layout.shape[d]], tests, strict=True)]
        out.append((at[0], at[1], " && ".join(checks)))
    return out


def registers(f: File, name: str, dtype: DType, layout: FragmentLayout, pointer: str, store: bool) -> None:
    """Copies a fragment to or from a dense global array."""
    for r, (row, col, test) in enumerate(places(layout)):
        place = f"{pointer}[{row} * {layout.shape[1]} + {col}]"
        move = f"{place} = {name}[{r}];" if store else f"{name}[{r}] = {place};"
        f.body.append(f"if ({test}) {move}" if test else move)


def operand(f: File, name: str, dtype: DType, shape: tuple[int, int], source: str, layout: FragmentLayout, margin: tuple[int, int]) -> Operand:
    """Declares an operand, fills it from the global array of the same name in capitals, and says where it is."""
    glob = name.upper()
    if source == "register":
        f.body.append(f"alignas(16) {ctype(dtype)} {name}_local[{layout.registers}];")
        registers(f, f"{name}_local", dtype, layout, glob, False)
        return RegisterOperand(f"{name}_local")
    tile = f.tile(f"{name}_shared", shape, dtype, margin)
    where = f"{name}_shared[{name}_shared_at(i / {shape[1]} + {margin[0]}, i % {shape[1]} + {margin[1]})]"
    f.body.append(f"for (int i = thread; i < {shape[0] * shape[1]}; i += {f.plan.threads}) {where} = {glob}[i];")
    return SharedOperand(f"{name}_shared", ctype(dtype), tile, str(margin[0]), str(margin[1]), f"{name}_shared_at")


def shapes(plan: GemmPlan) -> tuple[tuple[int, int], tuple[int, int]]:
    """Stored shapes of a and b."""
    op = plan.op
    return ((op.k, op.m) if op.trans_a else (op.m, op.k)), ((op.n, op.k) if op.trans_b else (op.k, op.n))


def product_file(plan: GemmPlan, clear: str = "", margin: tuple[int, int] = (0, 0)) -> str:
    """c += op(a) @ op(b) once."""
    f = File(plan)
    op, (a_shape, b_shape) = plan.op, shapes(plan)
    a = operand(f, "a", op.a_dtype, a_shape, op.a_source, plan.a_layout, margin)
    b = operand(f, "b", op.b_dtype, b_shape, op.b_source, plan.b_layout, margin)
    f.body.append("__syncthreads();")
    accumulator(f, load=True)
    f.body.append("__syncthreads();  // copies of an element are all read before the first is written back")
    f.body.append(gemm_text(render, f.need, plan, a, b, "c_local", clear))
    registers(f, "c_local", op.c_dtype, plan.c_layout, "C", True)
    return finished(f, a_shape, b_shape)


def accumulator(f: File, load: bool) -> None:
    """Declares c's registers; loads them from C or zeroes them."""
    layout, dtype = f.plan.c_layout, f.plan.op.c_dtype
    f.body.append(f"alignas(16) {ctype(dtype)} c_local[{layout.registers}]{'' if load else ' = {}'};")
    if load:
        registers(f, "c_local", dtype, layout, "C", False)


def pipeline_file(plan: GemmPlan, stages: int, steps: int, known: bool, prefetch: bool, chunk: int = 16, start: int = 0) -> str:
    """c = sum over steps of op(a[step]) @ op(b[step]), through a pipeline; A and B are steps x tile, dense."""
    f = File(plan, stages)
    op, (a_shape, b_shape) = plan.op, shapes(plan)
    tiles = [f.tile(f"{n}_shared", shape, d) for n, shape, d in (("a", a_shape, op.a_dtype), ("b", b_shape, op.b_dtype))]
    producers = tuple(
        (f"copy_{n}", producer(f, n, shape, tile, d, chunk, start))
        for n, shape, tile, d in (("a", a_shape, tiles[0], op.a_dtype), ("b", b_shape, tiles[1], op.b_dtype))
    )

    def at(name: str, layout: SharedLayout, dtype: DType, stage: str) -> SharedOperand:
        return SharedOperand(f"{name}_shared + {stage} * {layout.elements}", ctype(dtype), layout, "0", "0", f"{name}_shared_at")

    accumulator(f, load=False)
    text_a, text_b = (lambda s: at("a", tiles[0], op.a_dtype, s)), (lambda s: at("b", tiles[1], op.b_dtype, s))
    consumers: str | GemmInPipeline = GemmInPipeline(plan, text_a, text_b, "c_local")
    if not prefetch:
        consumers = gemm_text(render, f.need, plan, text_a("stage"), text_b("stage"), "c_local", "")
    stop = str(start + steps) if known else f"{start} + extra[0]"
    p = PipelineText("ko", str(start), stop, steps if known else None, stages, chunk > 0, producers, consumers)
    f.body.append(pipeline_text(render, f.need, p))
    registers(f, "c_local", op.c_dtype, plan.c_layout, "C", True)
    return finished(f, (max(1, steps), *a_shape), (max(1, steps), *b_shape))


def producer(f: File, name: str, shape: tuple[int, int], tile: SharedLayout, dtype: DType, chunk: int, start: int) -> str:
    """The body of a copy of one step: `chunk` bytes at a time by cp.async, or one element by plain stores for 0."""
    per = max(1, chunk // dtype.bytes)
    total = shape[0] * shape[1]
    first = f"const int e = i * {per};"
    target = f"{name}_shared + stage * {tile.elements} + {name}_shared_at(e / {shape[1]}, e % {shape[1]})"
    source = f"{name.upper()} + (ko - {start}) * {total} + e"
    if chunk:
        f.need(f"cp_async_{chunk}")
    move = f"cp_async_{chunk}({target}, {source});" if chunk else f"*({target}) = *({source});"
    return f"for (int i = thread; i < {total // per}; i += {f.plan.threads}) {{\n{first}\n{move}\n}}"


def finished(f: File, a_shape: tuple[int, ...], b_shape: tuple[int, ...]) -> str:
    """The whole file with manifest and launcher."""
    op = f.plan.op
    for dtype in {op.a_dtype, op.b_dtype, op.c_dtype}:
        if dtype in TYPES:
            f.need(TYPES[dtype])
    params = [
        {"name": n, "dtype": d.name, "shape": [str(x) for x in s], "role": role}
        for n, d, s, role in (("A", op.a_dtype, a_shape, "in"), ("B", op.b_dtype, b_shape, "in"), ("C", op.c_dtype, (op.m, op.n), "inout"))
    ]  # fmt: skip
    params.append({"name": "extra", "dtype": "int32", "shape": ["1"], "role": "in"})
    variant = {"symbol": "product", "arch": "sm_80", "when": "1", "args": ["A", "B", "C", "extra"], "grid": ["1", "1", "1"], "block": [f.plan.threads, 1, 1], "shared_bytes": str(f.shared)}
    manifest = {"version": 1, "kernels": [{"symbol": "product", "source": {"file": "x.py", "line": 1}, "extents": [], "workspace": "0", "params": params, "flop": "1", "bytes": "1", "launches": [{"variants": [variant]}]}]}
    a, b, c = (ctype(d) for d in (op.a_dtype, op.b_dtype, op.c_dtype))
    names = "const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;\n(void)warp;\n(void)lane;\n(void)extra;"
    kernel = f"__launch_bounds__({f.plan.threads})\nproduct(const {a}* A, const {b}* B, {c}* C, const int* extra) {{\n{names}\n" + "\n".join(f.body) + "\n}"
    return "\n".join(
        [
            "// tilec-manifest-begin", *(f"// {line}" for line in json.dumps(manifest, indent=0).splitlines()), "// tilec-manifest-end",
            "#ifndef __CUDACC_RTC__", "#include <cuda_runtime.h>", "#endif", "// ---- prelude", "namespace {", prelude.select(f.entries), "}", "// ---- end of prelude",
            "namespace {", *f.helpers, "}", 'extern "C" __global__ void ' + indent(kernel), LAUNCHER.format(threads=f.plan.threads, shared=f.shared),
        ]
    )  # fmt: skip


LAUNCHER = """#ifndef __CUDACC_RTC__
extern "C" cudaError_t product_launch(const void* A, const void* B, void* C, const void* extra, cudaStream_t stream) {{
  cudaLaunchConfig_t launch = {{}};
  launch.gridDim = dim3(1, 1, 1);
  launch.blockDim = dim3({threads}, 1, 1);
  launch.dynamicSmemBytes = {shared};
  launch.stream = stream;
  void* arguments[] = {{&A, &B, &C, &extra}};
  return cudaLaunchKernelExC(&launch, reinterpret_cast<const void*>(product), arguments);
}}
#endif
"""
