"""The prelude: its selection, its twins in the emulator, and that CUDA's compilers take it for every architecture."""

import re
from pathlib import Path

import pytest

from benchmarks import gpu_twins
from tests.toolchain import needs_nvcc, needs_nvrtc, nvcc_compile, nvrtc_compile
from tilec import templates_dir
from tilec.emit import prelude

FUNCTION = re.compile(
    r"(?:template <(?P<template>[^>]*)>\s*)?__device__ __forceinline__ (?P<type>[\w:<>, ]+?[ *]+)(?P<name>\w+)\((?P<parameters>[^)]*)\)"
)
TWINNED = ("memory", "async", "ldmatrix", "mma", "warp", "sync", "cluster", "atomic")
ARCHITECTURES = (80, 86, 89, 90)


def signatures(text: str) -> dict[str, set[tuple[str, ...]]]:
    """The functions of a text by name: template parameters, result and parameter list of each overload, spaces removed."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for match in FUNCTION.finditer(text):
        parameters = re.sub(r",?\s*TILEC_SITE", "", match["parameters"])
        parts = (match["template"] or "", match["type"], parameters)
        found.setdefault(match["name"], set()).add(tuple(re.sub(r"\s", "", part) for part in parts))
    return found


def test_every_wrapper_has_an_emulator_twin_of_equal_signature() -> None:
    folder = templates_dir.path()
    device: dict[str, set[tuple[str, ...]]] = {}
    for stem in TWINNED:
        device |= signatures((folder / "prelude" / f"{stem}.cuh").read_text())
    header = "\n".join((folder / "emulator" / name).read_text() for name in ("tilec_emulator.h", "cluster.h", "atomic.h"))
    host = signatures(header)
    assert len(device) > 40
    for name, overloads in device.items():
        assert host.get(name) == overloads, f"{name} differs between the prelude and the emulator"


def test_signature_parser_sees_differences() -> None:
    one = "template <int n>\n__device__ __forceinline__ void f(int a, TILEC_SITE) {"
    assert signatures(one) == {"f": {("intn", "void", "inta")}}
    assert signatures(one.replace("int a", "long a")) != signatures(one)
    assert signatures("__device__ __forceinline__ void f(int a) {") != signatures(one)


def test_select_takes_needs_along_in_file_order() -> None:
    text = prelude.select(["ldmatrix_x4", "cp_async_16"])
    places = [text.index(f" {name}(") for name in ("shared_address", "cp_async_16", "ldmatrix_x4")]
    assert places == sorted(places)
    assert prelude.MARKER not in text
    assert text.count("unsigned shared_address(") == 1
    assert prelude.select(["cp_async_16", "ldmatrix_x4", "shared_address"]) == text
    assert prelude.select([]) == ""


def test_select_refuses_unknown_names() -> None:
    with pytest.raises(prelude.UnknownEntry, match="no entry 'ldmatrix_x3'"):
        prelude.select(["ldmatrix_x3"])


def test_every_need_is_an_entry() -> None:
    table = prelude.entries()
    missing = {(entry.name, need) for entry in table.values() for need in entry.needs if need not in table}
    assert not missing


def test_entries_name_what_they_define() -> None:
    for name, entry in prelude.entries().items():
        base = name
        while not re.search(rf"\b{base}\b", entry.text) and "_" in base:
            base = base.rpartition("_")[0]  # overloads: atomic_add_int8 defines an atomic_add
        assert re.search(rf"\b{base}\b", entry.text), name


def test_atomic_entries() -> None:
    assert prelude.atomic_entry("add", "float16") == "atomic_add_float16"
    assert prelude.atomic_entry("add", "float32") == "atomic_add"
    assert prelude.atomic_entry("max", "float32") == "atomic_max_float32"
    assert prelude.atomic_entry("or", "bool") == "atomic_or_uint8"
    assert prelude.atomic_entry("load", "bfloat16") == "atomic_load"


def all_cases_text(capability: int, every_type: bool) -> str:
    """One file with a kernel for each case of the twins' comparison, so that every template is instantiated.

    Without `every_type`, one case for each set of entries: atomics and shuffles with a single element type.
    """
    cases = [case for case in gpu_twins.cases() if case.capability <= capability]
    if not every_type:
        cases = list({case.needs: case for case in cases}.values())
    needs = {need for case in cases for need in case.needs}
    kernels = [
        f'extern "C" __global__ void twin_{i}(const unsigned* __restrict__ input, unsigned* __restrict__ output) {{\n'
        f"  const int thread = threadIdx.x;\n{case.body}\n}}"
        for i, case in enumerate(cases)
    ]
    return prelude.select(needs) + "\n".join(kernels)


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvrtc_takes_every_wrapper(architecture: int) -> None:
    ptx = nvrtc_compile(all_cases_text(architecture, architecture in (80, 90)), f"sm_{architecture}")
    for instruction in ("cp.async.cg.shared.global.L2::128B", "ldmatrix.sync.aligned.m8n8.x4.trans", "mma.sync.aligned.m16n8k8"):
        assert instruction in ptx
    assert ("e4m3.e4m3.f32" in ptx) is (architecture == 89) and ("cvt.rn.f16x2.e4m3x2" in ptx) >= (architecture == 90)  # Hopper widens them


@needs_nvrtc
def test_nvrtc_takes_every_entry_alone_with_its_needs() -> None:
    """No entry leans on one that it does not name: each is compiled after nothing but its needs, in a namespace of its own."""
    pieces = [f"namespace alone_{name} {{\n{prelude.select([name])}\n}}" for name in prelude.entries()]
    nvrtc_compile("\n".join(pieces), "sm_90")


@needs_nvrtc
def test_vectors_move_by_one_instruction() -> None:
    text = prelude.select(["half_t", "load_vec", "store_vec"]) + (
        'extern "C" __global__ void k(const half_t* a, half_t* b) { store_vec(b, load_vec<8>(a)); }'
    )
    ptx = nvrtc_compile(text, "sm_80")
    assert re.search(r"ld\.global(\.\w+)*\.v(4\.[ubf]32|2\.[ubf]64)", ptx), ptx
    assert re.search(r"st\.global(\.\w+)*\.v(4\.[ubf]32|2\.[ubf]64)", ptx), ptx


@needs_nvcc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvcc_takes_every_wrapper(architecture: int, tmp_path: Path) -> None:
    nvcc_compile(all_cases_text(architecture, False), f"sm_{architecture}", tmp_path, "-Xptxas=-O0")
