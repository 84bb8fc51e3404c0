"""Statements: host conditions take one branch, run-time ones record both; what fails outside of kernels becomes poison.

    if K > 64: a = 1        with K = 128       ->  a is 1, nothing is recorded
    if A[i] > 0: B[i] = 1   inside a kernel    ->  If(A[i] > 0, Store(B, ...), Seq(()))
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import libcst as cst

from tilec.diagnostics import CompileError, Span
from tilec.frontend import hostops, loops
from tilec.frontend.branches import run_if
from tilec.frontend.classes import find as find_member
from tilec.frontend.classes import make_class, set_attribute, special
from tilec.frontend.effects import suspects
from tilec.frontend.expressions import AUGMENTED, binary, closure, host_item, items_of, spread, truth
from tilec.frontend.launches import launch_source, run_with
from tilec.frontend.machine import Flow, Jump, Machine, Return, is_device
from tilec.frontend.names import assigned, bind, dotted, find, import_name, is_var, lookup, snapshot
from tilec.frontend.patterns import run_match
from tilec.frontend.syntax import walk
from tilec.frontend.values import ClassValue, Deferred, Fatal, Frame, Instance, Iter, Module, Poison, Reported
from tilec.ir.expr import Buffer, Call, Const, Expr
from tilec.ir.tile import Break, Continue, Evaluate, Store
from tilec.language import lanes, regions
from tilec.language.values import Ref, Slice, SourceSpec, Value


_FAILURE = 50
"""Steps that a statement takes which fails: what depends on it has to be found."""


def run_block(m: Machine, body: cst.CSTNode, frame: Frame) -> Flow:
    """Runs the statements of a block until one of them leaves it."""
    match body:
        case cst.IndentedBlock() | cst.SimpleStatementLine() | cst.SimpleStatementSuite():
            for part in body.body:
                flow = run_block(m, part, frame) if isinstance(part, cst.SimpleStatementLine) else run_statement(m, part, frame)
                if flow is not None:
                    return flow
            return None
        case _:
            return run_statement(m, body, frame)


def run_statement(m: Machine, node: cst.CSTNode, frame: Frame) -> Flow:
    """Runs one statement. An error in it is kept (in a kernel) or poisons the names it would have bound (on the host)."""
    m.step(node, frame)
    try:
        return _statement(m, node, frame)
    except Fatal:
        raise
    except (CompileError, hostops.HostError) as found:
        fault = found if isinstance(found, CompileError) else m.fail("TL0108", str(found), frame.source.span(node))
        mark = m.keep(fault) if m.recording else fault
        m.steps += _FAILURE
        if _leaves(node):
            raise mark from None
        unknown_after(m, node, frame, mark)
        return None


def unknown_after(m: Machine, node: cst.CSTNode, frame: Frame, mark: CompileError) -> None:
    """Poisons what a statement that has failed would have bound, and what it may have changed."""
    own = assigned(node)

    def look(scope: Frame, name: str) -> Value:
        try:
            return find(m, scope, name, frame.source.span(node))
        except CompileError:
            return None

    attribute = _poison_attributes(m, node, frame, mark)
    touched = () if attribute else tuple((s, n, look(s, n), bound) for s, n, bound in suspects(node, frame, look))
    for name in own:
        if not (m.recording and is_var(frame.names.get(name))):
            frame.outer.get(name, frame).names[name] = Poison(name, mark)
    for scope, name, value, bound in touched:
        _spoil(m, scope, name, value, mark, bound)


def _poison_attributes(m: Machine, node: cst.CSTNode, frame: Frame, mark: CompileError) -> bool:
    """True for a failed `self.x = ...`: of the instance, only the attribute is unknown."""
    match node:
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Attribute(value=cst.Name(value=name), attr=attr))]):
            pass
        case cst.AnnAssign(target=cst.Attribute(value=cst.Name(value=name), attr=attr)):
            pass
        case _:
            return False
    owner = frame.names.get(name)
    if not isinstance(owner, Instance):
        return False
    owner.values[attr.value] = Poison(f"{name}.{attr.value}", mark)
    return True


def _spoil(m: Machine, frame: Frame, name: str, value: Value, mark: CompileError, bound: bool) -> None:
    """The object that a name holds is perhaps another one after a statement that is not understood, for everyone who holds it.

    A tile, a tensor, a function or a module is what it was; a number or text too, unless a function may have `bound` the name.
    """
    if isinstance(value, (list, dict, set, Instance, ClassValue, Iter)):
        m.spoiled[id(value)] = (value, Poison(name, mark))
        if isinstance(value, Instance):
            m.spoiled[id(value.cls)] = (value.cls, Poison(value.cls.name, mark))
    elif bound and (value is None or isinstance(value, (int, float, str, tuple))):
        frame.outer.get(name, frame).names[name] = Poison(name, mark)


def _leaves(node: cst.CSTNode) -> bool:
    """True when a statement decides what its function returns, so that nothing after it can be trusted without it."""
    if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        return False
    return any(isinstance(n, (cst.Return, cst.Raise)) for n in walk(node, into_functions=False))


def _statement(m: Machine, node: cst.CSTNode, frame: Frame) -> Flow:
    match node:
        case cst.Expr(value=value):
            if not isinstance(value, (cst.SimpleString, cst.ConcatenatedString, cst.Ellipsis)):
                m.b.hint = ""
                result = m.eval(value, frame)
                if isinstance(result, Call) and result.foreign and m.b.launch is not None:
                    m.b.emit(Evaluate(result, frame.source.span(node)))
                if isinstance(result, SourceSpec):
                    launch_source(m, result, frame.source.span(node))
        case cst.Assign():
            _assign(m, node, frame)
        case cst.AugAssign():
            _augmented(m, node, frame)
        case cst.AnnAssign():
            _annotated(m, node, frame)
        case cst.If():
            return run_if(m, node, frame)
        case cst.Match():
            return run_match(m, node, frame)
        case cst.For():
            return loops.run_for(m, node, frame)
        case cst.While():
            return loops.run_while(m, node, frame)
        case cst.With():
            return run_with(m, node, frame)
        case cst.Return(value=value):
            return _return(m, node, value, frame)
        case cst.Break() | cst.Continue():
            return _jump(m, node, frame)
        case cst.FunctionDef(name=name):
            frame.names[name.value] = m.define(node, frame)
        case cst.ClassDef():
            frame.names[node.name.value] = _class(m, node, frame)
        case cst.Assert():
            _assert(m, node, frame)
        case cst.Raise():
            _raise(m, node, frame)
        case cst.Try():
            return _try(m, node, frame)
        case cst.Import() | cst.ImportFrom():
            _import(m, node, frame)
        case cst.Global(names=names) | cst.Nonlocal(names=names):
            _declare_outer(m, frame, tuple(n.name.value for n in names), isinstance(node, cst.Global), frame.source.span(node))
        case cst.Del(target=target):
            _delete(m, target, frame)
        case cst.Pass():
            pass
        case cst.EmptyLine():
            pass
        case _:
            raise m.fail("TL0102", f"this statement ({type(node).__name__.lower()}) is not supported", frame.source.span(node))
    return None


def _assign(m: Machine, node: cst.Assign, frame: Frame) -> None:
    span = frame.source.span(node)
    first = node.targets[0].target
    m.b.hint = first.value if isinstance(first, cst.Name) else ""
    value = m.eval(node.value, frame)
    if len(node.targets) > 1 and not isinstance(first, (cst.Tuple, cst.List)):
        value = snapshot(m, value, m.b.hint or "value", span)
    m.b.hint = ""
    for t in node.targets:
        assign(m, t.target, value, frame, span)


def assign(m: Machine, target: cst.CSTNode, value: Value, frame: Frame, span: Span) -> None:
    """`target = value`: a name, a tuple of targets (all values are taken before the first store), an element."""
    match target:
        case cst.Name(value=name):
            bind(m, frame, name, value, span)
        case cst.Tuple(elements=elements) | cst.List(elements=elements):
            parts = spread(m, elements, value, span)
            if m.b.launch is not None:
                names = [e.value.value if isinstance(e.value, cst.Name) else "value" for e in elements]
                parts = [snapshot(m, p, n, span) for p, n in zip(parts, names, strict=True)]
            for e, part in zip(elements, parts, strict=True):
                assign(m, e.value, part, frame, span)
        case cst.Subscript():
            _store(m, target, value, frame, span)
        case cst.Attribute(value=owner, attr=attr):
            set_attribute(m, m.eval(owner, frame), attr.value, value, span)
        case _:
            raise m.fail("TL0102", "this target of an assignment is not supported", span)


def _store(m: Machine, target: cst.Subscript, value: Value, frame: Frame, span: Span) -> None:
    owner = m.eval(target.value, frame)
    if isinstance(owner, (Buffer, Ref)):
        ref = m.eval(target, frame)
        m.b.span = span
        regions.write(m.b, ref, value)
        return
    _host_store(m, owner, items_of(m, target, frame), value, span)


def _host_store(m: Machine, owner: Value, index: Value, value: Value, span: Span) -> None:
    if isinstance(owner, Instance) and find_member(owner.cls, "__setitem__") is not None:
        special(m, owner, "__setitem__", (index, value), span)
        return
    if not isinstance(owner, (list, dict)):
        raise m.fail("TL0108", f"{hostops.kind(owner)} cannot be assigned to by index", span)
    m.may_change(owner, span)
    value = snapshot(m, value, "item", span)
    with m.host(span):
        if isinstance(owner, dict):
            owner[hostops.key(index)] = value
            return
        if isinstance(index, Slice):
            bounds = slice(index.start, index.stop, index.step)
            values = m.iterate(value, span)
            try:
                owner[bounds] = values
            except (TypeError, ValueError) as fault:
                raise hostops.HostError(str(fault)) from None
            hostops.checked(owner)
            return
        host_item(m, owner, index, span)
        owner[index] = value


def _augmented(m: Machine, node: cst.AugAssign, frame: Frame) -> None:
    from tilec.frontend.builtins import BUILTINS

    span = frame.source.span(node)
    op = AUGMENTED.get(type(node.operator), "")
    match node.target:
        case cst.Name(value=name):
            held = lookup(m, frame, name, frame.source.span(node.target), BUILTINS)
            value = m.eval(node.value, frame)
            if _in_place(m, op, held, value, span):
                return
            told = special(m, held, f"__i{_NAMES.get(op, op)}__", (value,), span)
            bind(m, frame, name, binary(m, op, held, value, span) if told is NotImplemented else told, span)
        case cst.Subscript() as target:
            owner = m.eval(target.value, frame)
            if not isinstance(owner, (Buffer, Ref)):
                index = items_of(m, target, frame)
                old = host_item(m, owner, index, span)
                _host_store(m, owner, index, binary(m, op, old, m.eval(node.value, frame), span), span)
                return
            ref = m.eval(target, frame)
            m.b.span = span
            old = lanes.vector(m.b, ref) if lanes.is_vector(ref) else regions.read(m.b, ref)
            result = binary(m, op, old, m.eval(node.value, frame), span)
            m.b.span = span
            regions.write(m.b, ref, result)
        case cst.Attribute(value=left, attr=attr):
            owner = m.eval(left, frame)
            held = m.attribute(owner, attr.value, span)
            value = m.eval(node.value, frame)
            if not _in_place(m, op, held, value, span):
                set_attribute(m, owner, attr.value, binary(m, op, held, value, span), span)
        case _:
            raise m.fail("TL0102", "this target of an assignment is not supported", span)


_NAMES = {"div": "truediv", "shl": "lshift", "shr": "rshift"}


def _in_place(m: Machine, op: str, held: Value, value: Value, span: Span) -> bool:
    """`held op= value` for a list, set or dict, which changes the object itself for everyone who holds it."""
    match held, op:
        case list(), "add":
            changed: Value = [*held, *m.iterate(value, span)]
        case (list(), "mul") | (set() | dict(), "or") | (set(), "and" | "sub" | "xor"):
            changed = binary(m, op, held, value, span)
        case _:
            return False
    m.may_change(held, span)
    with m.host(span):
        hostops.checked(changed)
    if isinstance(held, list):
        held[:] = changed
    else:
        held.clear()
        held.update(changed)
    return True


def _annotated(m: Machine, node: cst.AnnAssign, frame: Frame) -> None:
    if node.value is not None:
        m.b.hint = node.target.value if isinstance(node.target, cst.Name) else ""
        value = m.eval(node.value, frame)
        m.b.hint = ""
        assign(m, node.target, value, frame, frame.source.span(node))
    elif isinstance(node.target, cst.Name) and frame.kernel and m.form is not None:
        m.form.declare(m, node.target.value, node.annotation.annotation, frame)


def _return(m: Machine, node: cst.Return, value: cst.BaseExpression | None, frame: Frame) -> Return:
    span = frame.source.span(node)
    if frame.kernel and m.b.launch is not None and (m.b.launch.axes is None or m.depth):
        raise m.fail("TL0105", "`return` inside T.Kernel", span, help="put the rest of the kernel under an `if`")
    if m.depth > frame.depth:
        text = "`return` under a condition that is only known at run time"
        raise m.fail("TL0105", text, span, help="use T.if_then_else, or assign to a T.alloc_var and return it at the end")
    result = None if value is None else m.eval(value, frame)
    if m.depth and is_device(result) and not isinstance(result, Buffer) and not isinstance(result, Ref):
        result = snapshot(m, result, "result", span)
    return Return(result, span)


def _jump(m: Machine, node: cst.CSTNode, frame: Frame) -> Jump:
    span = frame.source.span(node)
    leaves = isinstance(node, cst.Break)
    word = "break" if leaves else "continue"
    if not m.loops:
        raise Fatal(*m.fail("TL0101", f"`{word}` outside of a loop", span).diagnostics)
    loop = m.loops[-1]
    if loop.kind == "host":
        if m.depth > loop.depth:
            text = f"`{word}` under a run-time condition, in a loop that is unrolled while compiling"
            raise m.fail("TL0105", text, span, help="loop with T.serial or T.unroll over a range instead")
        return Jump.BREAK if leaves else Jump.CONTINUE
    if leaves and loop.kind in _WHOLE:
        what, why = _WHOLE[loop.kind]
        text = f"`break` would leave a {what} loop, {why}"
        raise m.fail("TL0105", text, span, help="loop with T.serial, or skip iterations with `continue`")
    m.b.span = span
    if leaves and loop.left is not None:
        m.b.emit(Store(loop.left, (), Const(1, loop.left.dtype), span))
    m.b.emit(Break(span) if leaves else Continue(span))
    return Jump.BREAK if leaves else Jump.CONTINUE


_TOGETHER = "whose iterations have no order"
_WHOLE = {
    "parallel": ("T.Parallel", _TOGETHER), "nested": ("T.Parallel", _TOGETHER), "vectorized": ("T.vectorized", _TOGETHER),
    "grid": ("T.grid", "which has several counters"),
}  # fmt: skip


def _assert(m: Machine, node: cst.Assert, frame: Frame) -> None:
    span = frame.source.span(node)
    known = truth(m, m.eval(node.test, frame), frame.source.span(node.test))
    if isinstance(known, Expr):
        raise m.fail("TL0213", "this assertion needs a value that is only known at run time", span,
                     help=loops.size_help(known) or "use T.device_assert in a kernel")  # fmt: skip
    if not known:
        text = "assertion failed" if node.msg is None else f"assertion failed: {_shown(m, node.msg, frame)}"
        raise Fatal(*m.fail("TL0111", text, span).diagnostics)


def _shown(m: Machine, node: cst.BaseExpression, frame: Frame) -> str:
    try:
        return hostops.text(m.eval(node, frame))[:400]
    except CompileError:
        return cst.Module([]).code_for_node(node)[:400]


def _raise(m: Machine, node: cst.Raise, frame: Frame) -> None:
    span = frame.source.span(node)
    text = "the program raises an exception here"
    if isinstance(node.exc, cst.Call) and node.exc.args:
        name = cst.Module([]).code_for_node(node.exc.func)
        text = f"{name}: {_shown(m, node.exc.args[0].value, frame)}"
    if m.depth > frame.depth:
        raise m.fail("TL0105", "`raise` under a condition that is only known at run time", span, help="use T.device_assert in a kernel")
    raise Fatal(*m.fail("TL0111", text, span).diagnostics)


def _try(m: Machine, node: cst.Try, frame: Frame) -> Flow:
    """Runs the body alone; when it fails, whatever the statement binds is unknown, for no exception is ever made."""
    if m.recording:
        raise m.fail("TL0102", "`try` is not supported in a kernel", frame.source.span(node))
    try:
        flow = run_block(m, node.body, frame)
        if flow is None and node.orelse is not None:
            flow = run_block(m, node.orelse.body, frame)
        last = run_block(m, node.finalbody.body, frame) if node.finalbody is not None else None
        return flow if last is None else last
    except Fatal as fault:
        if fault.diagnostics[0].code != "TL0111":
            raise
        raise CompileError(*fault.diagnostics) from None


def _class(m: Machine, node: cst.ClassDef, frame: Frame) -> ClassValue:
    inner = Frame(frame.source, parent=frame, depth=m.depth, klass=True)
    run_block(m, node.body, inner)
    return make_class(m, node, inner.names, frame)


def _declare_outer(m: Machine, frame: Frame, names: tuple[str, ...], to_module: bool, span: Span) -> None:
    for name in names:
        scope = frame.parent
        while scope is not None and not (scope.module is not None if to_module else name in scope.names):
            scope = scope.parent
        if scope is None or (scope.module is not None and not to_module):
            raise m.fail("TL0102", f"`{name}` has no outer scope to be taken from", span)
        if to_module and m.recording:
            raise m.fail("TL0102", "changing a global variable from a kernel is not supported", span, help="keep it in a T.alloc_var")
        frame.outer[name] = scope


def _delete(m: Machine, target: cst.BaseExpression, frame: Frame) -> None:
    span = frame.source.span(target)
    match target:
        case cst.Name(value=name) if name in frame.names:
            del frame.names[name]
        case cst.Tuple(elements=elements):
            for e in elements:
                _delete(m, e.value, frame)
        case cst.Subscript():
            owner = m.eval(target.value, frame)
            index = items_of(m, target, frame)
            if not isinstance(owner, (list, dict)):
                raise m.fail("TL0108", f"elements of {hostops.kind(owner)} cannot be deleted", span)
            m.may_change(owner, span)
            host_item(m, owner, index, span)
            del owner[slice(index.start, index.stop, index.step) if isinstance(index, Slice) else hostops.plain(index)]
        case cst.Attribute(value=left, attr=attr) if isinstance(owner := m.eval(left, frame), Instance) and attr.value in owner.values:
            m.may_change(owner, span)
            del owner.values[attr.value]
        case _:
            raise m.fail("TL0201", "there is nothing to delete", span)


def _import(m: Machine, node: cst.Import | cst.ImportFrom, frame: Frame) -> None:
    span = frame.source.span(node)
    if isinstance(node, cst.Import):
        for alias in node.names:
            _bind_import(m, alias.evaluated_name, 0, frame, import_name(alias), partial(_whole, m, alias, frame, span))
        return
    name, level = dotted(node.module), len(node.relative)
    if isinstance(node.names, cst.ImportStar):
        module = m.import_module(name, frame, level, span)
        if isinstance(module, Poison):
            return
        for member in m.exports(module):
            frame.names[member] = m.attribute(module, member, span)
        return
    for alias in node.names:
        load = partial(_from, m, node, alias.evaluated_name, frame, span)
        _bind_import(m, name, level, frame, import_name(alias), load)


def _bind_import(m: Machine, module: str, level: int, frame: Frame, name: str, load: Callable[[], Value]) -> None:
    """Binds a name of an import, or lets it wait where that makes no difference."""
    frame = frame.outer.get(name, frame)
    key = m.leaf(module, frame, level) if frame.module is not None and module else ""
    if key:
        m.waiting.setdefault(key, []).append((frame.names, name))
    frame.names[name] = Deferred(load) if key else load()


def _whole(m: Machine, alias: cst.ImportAlias, frame: Frame, span: Span) -> Value:
    """The value of a name of `import a.b`."""
    name = alias.evaluated_name
    module = m.import_module(name, frame, 0, span)
    return module if alias.asname is not None or "." not in name else m.import_module(name.partition(".")[0], frame, 0, span)


def _from(m: Machine, node: cst.ImportFrom, name: str, frame: Frame, span: Span) -> Value:
    """The value of a name of `from a import b`."""
    return _member(m, m.import_module(dotted(node.module), frame, len(node.relative), span), name, node, frame, span)


def _member(m: Machine, module: Value, name: str, node: cst.ImportFrom, frame: Frame, span: Span) -> Value:
    if isinstance(module, Poison):
        return Poison(name, module.cause)
    try:
        return m.attribute(module, name, span)
    except Fatal:
        raise
    except CompileError as fault:
        deeper = f"{dotted(node.module)}.{name}".strip(".")
        found = m.import_module(deeper, frame, len(node.relative), span) if isinstance(module, Module) else None
        return Poison(name, fault) if found is None or isinstance(found, (Poison, Reported)) else found


__all__ = ["assign", "closure", "run_block", "run_statement"]
