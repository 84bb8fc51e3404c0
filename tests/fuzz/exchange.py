"""Statements that reach beyond a block's own tiles: atomics on tensors that all blocks share, tensors written element by element,
copies from tensor to tensor, and threads that exchange values within their warp or block.

    shared_updates(program)  ->  for i3 in T.Parallel(48): T.atomic_add(all4[i3 % 16], f2[i3])
"""

from __future__ import annotations

from tests.fuzz.program import Program
from tests.fuzz.values import Value, dtype

_ANY_ORDER = ("int32", "float32", "int64", "uint32", "uint64", "float64")


def shared_updates(p: Program) -> None:
    """A tensor that every block updates with one kind of atomic; sums are of small whole numbers, so that the order is free."""
    c = p.choices
    tiles = [t for t in p.readable(exact=True) if t.dtype.name in _ANY_ORDER and (t.dtype.is_int or (t.bound or 999) < 999)]
    if tiles and c.chance(40):
        tile = c.pick(tiles)
        lead = c.pick(((), (2,)))
        target = p.tensor(tile.dtype, (*lead, *(max(1, n - c.pick((0, 0, 3))) for n in tile.shape)), "counted")
        region = ", ".join([*(p.expressions.index(n, p.context()) for n in lead), *(f"0:{n}" for n in tile.shape)])
        return p.line(f"T.atomic_add({target.name}[{region}], {tile.name})")
    d = dtype(c.pick(_ANY_ORDER))
    target = p.tensor(d, p.shape(c.pick((1, 2)), 512), "counted")
    i, n = p.name("i"), c.pick((16, 1, 48, 200, 129))
    p.line(f"for {i} in T.Parallel({n}):")
    p.level += 1
    context = p.context((i, n))
    e = p.expressions
    value = e.value(d, context, 2)
    if d.is_float:
        value = e.clamped(value, 2, whole=True)
    index = [e.index(n, context) for n in target.shape]
    if c.chance(20):  # updates out of range are dropped
        index[0] = f"{index[0]} {c.pick('+-')} {c.pick((1, 3))}"
    if c.chance(25):
        p.line(f"if {e.condition(context, 1).text}:")
        p.level += 1
        p.line(f"T.atomic_{c.pick(('add', 'max', 'min'))}({target.name}[{', '.join(index)}], {value.text})")
        p.level -= 1
    else:
        p.line(f"T.atomic_{c.pick(('add', 'max', 'min'))}({target.name}[{', '.join(index)}], {value.text})")
    p.level -= 1
    return None


def elementwise(p: Program) -> None:
    """A tensor of which each block computes its own part without a tile between."""
    c = p.choices
    shape = p.shape(c.pick((2, 1, 3)))
    d = dtype(c.pick(("float32", "float16", "int32", "bfloat16", "int8", "uint8", "int64", "bool")))
    out = p.tensor(d, (*reversed(p.grid), *shape), "poison")
    names = [p.name("i") for _ in shape]
    loops = c.shuffled(list(zip(names, shape, strict=True)))
    p.line(f"for {', '.join(v for v, _ in loops)} in T.Parallel({', '.join(str(n) for _, n in loops)}):")
    p.level += 1
    value = p.expressions.value(d, p.context(*loops), 3)
    if c.chance(25):
        p.line(f"v{p.names} = {value.text}")
        value = Value(f"v{p.names}", d)
    p.line(f"{out.name}[{', '.join((*(v for v, _ in reversed(p.blocks)), *names))}] = {value.text}")
    p.level -= 1


def moved(p: Program) -> None:
    """A part of one tensor straight into another one."""
    c = p.choices
    source = c.pick([t.tile for t in p.tensors if t.is_input])
    shape = tuple(c.pick([n for n in (16, 1, 3, 8, 33, 96) if n <= 2 * extent] or [1]) for extent in source.shape)
    out = p.tensor(source.dtype if c.chance(70) else dtype(c.pick(("float32", "int32"))), (*reversed(p.grid), *shape), "poison")
    starts = [p.start_of(n, t) for n, t in zip(source.shape, shape, strict=True)]
    region = ", ".join(f"{s}:{s} + {n}" for s, n in zip(starts, shape, strict=True))
    whole = ", ".join(f"0:{n}" for n in shape)
    p.line(f"T.copy({source.name}[{region}], {out.name}[{', '.join(v for v, _ in reversed(p.blocks))}, {whole}])")


def warps(p: Program) -> None:
    """Threads that pass values of theirs to others of their warp, or vote; each writes its own element."""
    c = p.choices
    if p.threads % 32:
        return p.copy_in()
    d = dtype(c.pick(("int32", "float32", "int64", "float16", "uint8")))
    target = p.alloc(d, (p.threads,), "shared")
    tx, v = p.name("tx"), p.name("v")
    p.line(f"{tx} = T.get_thread_binding(0)")
    context = p.context((tx, p.threads))
    context.hidden = {target.name, *(t.name for t in p.tiles if t.scope == "fragment")}
    e = p.expressions
    p.line(f"{v} = {e.value(d, context, 2).text}")
    far = c.pick((1, 16, 3, 31, 8))
    kind = c.pick(("xor", "down", "up", "from", "max", "min", "any", "all", "count", "or", "and"))
    width = c.pick(("", "", ", 16", ", 8")) if far < 8 else ""
    moved = {"xor": f"T.shfl_xor({v}, {far}{width})", "down": f"T.shfl_down({v}, {far}{width})", "up": f"T.shfl_up({v}, {far}{width})",
             "from": f"T.shfl_sync({v}, {far}{width})", "max": f"T.warp_reduce_max({v})", "min": f"T.warp_reduce_min({v})"}  # fmt: skip
    if kind in moved and d.bits == 32:
        p.line(f"{target.name}[{tx}] = {moved[kind]}")
        return p.learn(target, Value("", d), True)
    test = e.condition(p.context((tx, p.threads)) if not context.hidden else context, 1).text
    vote = {"any": "any_sync", "all": "all_sync", "count": "syncthreads_count", "or": "syncthreads_or", "and": "syncthreads_and"}
    p.line(f"{target.name}[{tx}] = T.cast(T.{vote.get(kind, 'any_sync')}({test}), '{d}')")
    return p.learn(target, Value("", d), True)
