"""What each identifier of a Python file is bound to, by `symtable`.

An identifier token gets a scope (local, parameter, free, imported, global, builtin, class, attribute, keyword, other),
whether it binds, and the block it stands in. Tables of `symtable` are matched to syntax nodes by kind, name and line,
in source order.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from gllm_lib.checks import FileError
from gllm_lib.corpora.code_tokens import Source

COMPREHENSIONS = {ast.ListComp: "listcomp", ast.SetComp: "setcomp", ast.DictComp: "dictcomp",
                  ast.GeneratorExp: "genexpr"}  # fmt: skip
BUILTINS = frozenset(dir(builtins))


@dataclass(eq=False)
class Block:
    """A scope: kind (module, function, lambda, comprehension, class), its table, the enclosing block, its class."""

    kind: str
    table: symtable.SymbolTable
    outer: Block | None
    owner: str  # name of the innermost enclosing class, for private names
    inlined: frozenset[str] | None = None  # names a comprehension binds that has no table of its own
    inner: dict[tuple[str, int], deque[symtable.SymbolTable]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.inlined is None:
            self.inner = defaultdict(deque)
            for table in _flattened(self.table):
                self.inner[table.get_name(), table.get_lineno()].append(table)

    def enter(self, kind: str, name: str, line: int, owner: str) -> Block:
        """Return the block of the next table called `name` at `line`; raises FileError if there is none."""
        waiting = self.inner.get((name, line))
        if not waiting:
            raise FileError(f"symtable lists no {kind} {name!r} at line {line}; leave the file out")
        return Block(kind, waiting.popleft(), self, owner)

    def enter_comprehension(self, node: ast.AST) -> Block:
        """Return the block of a comprehension; from Python 3.12 on most share the table of the block around them."""
        waiting = self.inner.get((COMPREHENSIONS[type(node)], node.lineno))  # type: ignore[attr-defined]
        if waiting:
            return Block("comprehension", waiting.popleft(), self, self.owner)
        targets = [part.target for part in node.generators]  # type: ignore[attr-defined]
        bound = frozenset(name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
        return Block("comprehension", self.table, self, self.owner, bound, self.inner)


def _flattened(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """Yield the tables one level down, looking through the extra scopes of type parameters and annotations."""
    for child in table.get_children():
        if str(child.get_type()).rsplit(".", 1)[-1].lower() in ("function", "class"):
            yield child
        else:
            yield from _flattened(child)


class Binding(NamedTuple):
    """Of one identifier token: its scope, whether it binds here, its block, and the key that all its uses share."""

    scope: str
    binds: bool
    block: Block
    key: tuple[int, str]


def bindings(source: Source) -> tuple[list[Binding | None], list[Block]]:
    """Return, per token, its binding (None where it is no identifier) and the block it stands in."""
    module = Block("module", symtable.symtable(source.text, source.name, "exec"), None, "")
    roles: dict[ast.AST, list[tuple[str, str, Block]]] = {}
    blocks: dict[ast.AST, Block] = {}
    _visit(source.tree, module, roles, blocks)
    by_number = [blocks.get(node.syntax, module) for node in source.nodes]
    waiting = {node.syntax: deque(roles.get(node.syntax, ())) for node in source.nodes}
    found: list[Binding | None] = []
    for token, number in zip(source.tokens, source.owner, strict=True):
        binding = None
        if token.kind == "name":
            queue = waiting[source.nodes[number].syntax]
            while queue and queue[0][0] != token.text:  # a dotted import: only some of its words are listed
                if token.text not in [name for name, _, _ in queue]:
                    break
                queue.popleft()
            if queue and queue[0][0] == token.text:
                name, role, block = queue.popleft()
                binding = _resolve(name, role, block, module)
            else:
                binding = Binding("other", False, by_number[number], (-2, token.text))
        found.append(binding)
    return found, [by_number[number] for number in source.owner]


def _resolve(name: str, role: str, block: Block, module: Block) -> Binding:
    """Return what `name`, used in `role` inside `block`, is bound to."""
    if role in ("attribute", "keyword"):
        return Binding(role, False, block, (-1, name))
    if block.inlined is not None and block.outer is not None:
        if name in block.inlined:
            return Binding("local", role == "bind", block, (id(block), name))
        around = _resolve(name, role, block.outer, module)
        if around.scope == "class":  # a comprehension does not see the names of the class body it stands in
            outside = block.outer
            while outside.outer is not None and (outside.kind == "class" or _lookup(outside, name) is None):
                outside = outside.outer
            known = _lookup(outside, name) is not None
            unknown = Binding("builtin" if name in BUILTINS else "global", False, block, (module.table.get_id(), name))
            around = _resolve(name, role, outside, module) if known else unknown
        reached = "free" if around.scope in ("local", "parameter") else around.scope
        return Binding(reached, around.binds, block, around.key)
    symbol = _lookup(block, name)
    binds = role == "bind"
    if symbol is None:
        return Binding("other", binds, block, (block.table.get_id(), name))
    if symbol.is_free():
        home: Block = block
        while home.outer is not None:
            home = home.outer
            seen = _lookup(home, name)
            if seen is not None and home.kind != "class" and seen.is_local():
                break
        return Binding("free", binds, block, (home.table.get_id(), name))
    top = _lookup(module, name)
    if block is not module and symbol.is_global():
        defined = top is not None and (top.is_assigned() or top.is_imported() or top.is_namespace())
        scope = "global" if defined or name not in BUILTINS else "builtin"
        scope = "imported" if top is not None and top.is_imported() else scope
        return Binding(scope, binds, block, (module.table.get_id(), name))
    if block is module and not (symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()):
        return Binding("builtin" if name in BUILTINS else "global", binds, block, (module.table.get_id(), name))
    key = (block.table.get_id(), name)
    if symbol.is_imported():
        return Binding("imported", binds, block, key)
    if symbol.is_parameter():
        return Binding("parameter", binds, block, key)
    return Binding({"module": "global", "class": "class"}.get(block.kind, "local"), binds, block, key)


def _lookup(block: Block, name: str) -> symtable.Symbol | None:
    for spelling in (name, f"_{block.owner.lstrip('_')}{name}"):  # private names are stored with their class
        try:
            return block.table.lookup(spelling)
        except KeyError:
            continue
    return None


def _visit(
    node: ast.AST, block: Block, roles: dict[ast.AST, list[tuple[str, str, Block]]], blocks: dict[ast.AST, Block]
) -> None:
    """Record, for every node below, its block and the identifiers it names in the order of the text."""
    blocks[node] = block
    roles[node] = [(name, role, block) for name, role in _named(node)]
    outside: list[ast.AST] = []
    inside = block
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        name = "lambda" if isinstance(node, ast.Lambda) else node.name
        kind = "lambda" if isinstance(node, ast.Lambda) else "function"
        inside = block.enter(kind, name, node.lineno, block.owner)
        outside = [*node.args.defaults, *(each for each in node.args.kw_defaults if each)]
        if not isinstance(node, ast.Lambda):
            outside += [*node.decorator_list, *([node.returns] if node.returns else [])]
        parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        parameters += [each for each in (node.args.vararg, node.args.kwarg) if each]
        for parameter in parameters:
            blocks[parameter] = inside
            roles[parameter] = [(parameter.arg, "bind", inside)]
            outside += [parameter.annotation] if parameter.annotation else []
        blocks[node.args] = block
        below: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
    elif isinstance(node, ast.ClassDef):
        inside = block.enter("class", node.name, node.lineno, node.name)
        outside = [*node.bases, *node.keywords, *node.decorator_list]
        below = list(node.body)
    elif type(node) in COMPREHENSIONS:
        inside = block.enter_comprehension(node)
        outside = [node.generators[0].iter]  # type: ignore[attr-defined]
        below = [child for child in _comprehended(node) if child is not outside[0]]
    else:
        below = list(ast.iter_child_nodes(node))
    for child in outside:
        _visit(child, block, roles, blocks)
    for child in below:
        _visit(child, inside, roles, blocks)


def _comprehended(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield from ast.iter_child_nodes(child) if isinstance(child, ast.comprehension) else [child]


def _named(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield (identifier, role) for the identifiers a node owns itself; role is bind, use, attribute or keyword."""
    match node:
        case ast.Name(id=name, ctx=context):
            yield name, "use" if isinstance(context, ast.Load) else "bind"
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name, "bind"
        case ast.Attribute(attr=name):
            yield name, "attribute"
        case ast.keyword(arg=str(name)):
            yield name, "keyword"
        case ast.alias(name=name, asname=alias):
            yield alias or name.split(".")[0], "bind"
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name, "bind"
        case ast.MatchMapping(rest=str(name)):
            yield name, "bind"
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            for name in names:
                yield name, "use"
