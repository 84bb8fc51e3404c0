"""Random numbers: the Philox4x32-10 streams of cuRAND, one a thread.

T.rng_init(seed)   ->  let seed, let sequence (the number of the thread in its grid), a count of draws
T.rng_rand()       ->  philox(seed, sequence, count), and the count goes up; in T.Parallel each iteration has a number of its own
"""

from __future__ import annotations

from typing import Any

from tilec.ir.dtypes import FLOAT32, FLOAT64, UINT32, UINT64
from tilec.ir.expr import Binary, Buffer, Call, Cast, Const, Expr, Load, Scope, Var, VarKind
from tilec.ir.tile import Alloc, Let, Store
from tilec.language.access import as_expr, host_int
from tilec.language.arith import binary
from tilec.language.bind import Entry, works
from tilec.language.builder import Builder
from tilec.language.context import in_kernel
from tilec.language.show import describe
from tilec.language.warp import held, thread_number, together

_GENERATOR = "curandStatePhilox4_32_10_t"


def rng_init(b: Builder, seed: Any, seq: Any = None, off: Any = 0, generator: Any = _GENERATOR) -> None:
    """Starts the thread's stream: `seq` chooses it (default: the thread's number in its row of blocks), `off` skips numbers."""
    launch = in_kernel(b, "rng_init")
    together(b, "rng_init")
    if generator != _GENERATOR:
        raise b.error("TL0204", f"the generator {describe(generator)} is not supported", help=f'use "{_GENERATOR}", the default')
    if seq is None:
        x = (launch.threads or (128, 1, 1))[0]
        seq = binary(b, "add", launch.thread_vars[0], binary(b, "mul", launch.block_vars[0], x))
    stream = held(b, as_expr(b, seed, UINT64), "seed"), held(b, as_expr(b, seq, UINT64), "sequence")
    count = Buffer("draws", UINT64, (), Scope.VAR, span=b.span)
    b.emit(Alloc(count, b.span))
    b.emit(Store(count, (), as_expr(b, off, UINT64), b.span))
    b.random = (launch, *stream, count)
    thread_number(b, "rng_init")


def rng_rand(b: Builder) -> Expr:
    """The next number of the thread's stream, a uint32."""
    return _draw(b, "rng_rand", b.hint or "random")


def rng_rand_float(b: Builder, bit: Any = 32, dist: Any = "uniform") -> Expr:
    """The next number of the thread's stream as a float between 0 (excluded) and 1; float64 for bit=64."""
    if dist != "uniform":
        raise b.error("TL0204", f"the distribution {describe(dist)} is not supported", help="make it from uniform numbers")
    bits = host_int(b, bit, "bit")
    if bits == 32:
        x = Cast(_draw(b, "rng_rand_float", "word"), FLOAT32)
        return Binary("add", Binary("mul", x, Const(2.0**-32, FLOAT32), FLOAT32), Const(2.0**-33, FLOAT32), FLOAT32)
    if bits != 64:
        raise b.error("TL0206", f"a random float has 32 or 64 bits, got {bits}")
    low, high = (Cast(_draw(b, "rng_rand_float", "word"), UINT64) for _ in range(2))
    word = Binary("xor", low, Binary("shl", high, Const(21, UINT64), UINT64), UINT64)
    return Binary("add", Binary("mul", Cast(word, FLOAT64), Const(2.0**-53, FLOAT64), FLOAT64), Const(2.0**-54, FLOAT64), FLOAT64)


def _draw(b: Builder, name: str, hint: str) -> Expr:
    launch = in_kernel(b, name)
    if b.random is None or b.random[0] is not launch:
        raise b.error("TL0205", f"`T.{name}` before T.rng_init", help="start with T.rng_init(seed)")
    _, seed, sequence, count = b.random
    if b.in_parallel:
        return held(b, Call("philox", (seed, sequence, _of_iteration(b, name, count)), UINT32), hint)
    word = held(b, Call("philox", (seed, sequence, Load(count, ())), UINT32), hint)
    b.emit(Store(count, (), Binary("add", Load(count, ()), Const(1, UINT64), UINT64), b.span))
    return word


def _of_iteration(b: Builder, name: str, count: Buffer) -> Expr:
    """The place in the stream of an iteration of T.Parallel: its running number behind all that was drawn before the loop."""
    domain = b.domain
    if domain is None or domain.repeated:
        text = f"`T.{name}` in a loop inside T.Parallel"
        raise b.error("TL0205", text, help="draw once for each iteration of T.Parallel, or loop over threads instead")
    total: Expr = Const(1, UINT64)
    number: Expr = Const(0, UINT64)
    for v, extent in zip(domain.vars, domain.extents, strict=True):
        size = as_expr(b, extent, UINT64)
        number = as_expr(b, binary(b, "add", binary(b, "mul", number, size), as_expr(b, v, UINT64)))
        total = as_expr(b, binary(b, "mul", total, size))
    if domain.base is None:
        domain.base = Var("drawn", UINT64, VarKind.LET, span=b.span)
        domain.before.append(Let(domain.base, Load(count, ()), b.span))
    place = as_expr(b, binary(b, "add", domain.base, binary(b, "add", binary(b, "mul", total, Const(domain.draws, UINT64)), number)))
    domain.draws += 1
    drawn = binary(b, "add", domain.base, binary(b, "mul", total, Const(domain.draws, UINT64)))
    domain.after[:] = [Store(count, (), as_expr(b, drawn), b.span)]
    return place


ENTRIES: tuple[Entry, ...] = works(rng_init) + works(rng_rand) + works(rng_rand_float)
