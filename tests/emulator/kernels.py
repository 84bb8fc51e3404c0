"""Small files in the form of a generated one, for tests of the emulator: a body, its parameters, and the launch around it.

    text = kernel_file("  C[threadIdx.x] = A[threadIdx.x] * s;", [tensor("A", "float32", ["n"]), tensor("C", "float32", ["n"], "out"),
                       scalar("s", "float32")], extents=["n"], block=32)
"""

import json
from collections.abc import Sequence
from typing import Any

from tilec.emit import prelude

C_TYPES = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short", "int32": "int",
    "uint32": "unsigned", "int64": "long long", "uint64": "unsigned long long", "float16": "half_t", "bfloat16": "bfloat16_t",
    "float32": "float", "float64": "double",
}  # fmt: skip


def tensor(name: str, dtype: str, shape: Sequence[str], role: str = "in", **more: Any) -> dict[str, Any]:
    """A tensor parameter of the manifest."""
    return {"name": name, "dtype": dtype, "shape": list(shape), "role": role, **more}


def scalar(name: str, dtype: str) -> dict[str, Any]:
    """A scalar parameter of the manifest."""
    return {"name": name, "dtype": dtype, "role": "scalar"}


def kernel_file(
    body: str, params: Sequence[dict[str, Any]], *, extents: Sequence[str] = (), block: int = 32, grid: str = "1", shared: int = 0,
    needs: Sequence[str] = (), workspace: str = "0", before_launch: str = "", cluster: int = 1,
) -> str:  # fmt: skip
    """The .cu; `grid` is C text of the launch's dim3 arguments, `before_launch` is put in front of the launch, `cluster` the blocks of a cluster."""
    spelled = [
        f"{C_TYPES[p['dtype']]} {p['name']}"
        if p["role"] == "scalar"
        else f"{'const ' if p['role'] == 'in' else ''}{C_TYPES[p['dtype']]}* {p['name']}"
        for p in params
    ]
    tail = [f"int {e}" for e in extents] + (["void* workspace"] if workspace != "0" else [])
    names = [p["name"] for p in params] + list(extents) + (["workspace"] if workspace != "0" else [])
    host = [
        s if p["role"] == "scalar" else f"{'const ' if p['role'] == 'in' else ''}void* {p['name']}"
        for p, s in zip(params, spelled, strict=True)
    ]
    variant = {"symbol": "k", "arch": "sm_80", "when": "1", "args": names, "grid": [], "block": [block, 1, 1], "shared_bytes": shared}
    variant["cluster"] = [cluster, 1, 1]
    kernel = {
        "symbol": "k", "params": list(params), "extents": [{"name": e, "dtype": "int32"} for e in extents], "workspace": workspace,
        "launches": [{"variants": [variant]}],
    }  # fmt: skip
    return f"""// tilec-manifest-begin
// {json.dumps({"version": 1, "kernels": [kernel]})}
// tilec-manifest-end
#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif
// ---- prelude
{prelude.select(needs)}
// ---- end of prelude

extern "C" __global__ void __launch_bounds__({block}){f" __cluster_dims__({cluster}, 1, 1)" if cluster > 1 else ""}
k({", ".join([*spelled, *tail])}) {{
{body}
}}

#ifndef __CUDACC_RTC__
extern "C" cudaError_t k_launch({", ".join([*host, *tail, "cudaStream_t stream"])}) {{
  cudaLaunchConfig_t launch = {{}};
  launch.gridDim = dim3({grid});
  launch.blockDim = dim3({block}, 1, 1);
  launch.dynamicSmemBytes = {shared};
  launch.stream = stream;
  const void* const kernel = reinterpret_cast<const void*>(k);
{before_launch}
  void* arguments[] = {{{", ".join("&" + n for n in names)}}};
  return cudaLaunchKernelExC(&launch, kernel, arguments);
}}
#endif
"""
