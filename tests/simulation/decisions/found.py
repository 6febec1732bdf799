"""Finds the decisions of a module, and puts a call beside each that reports its outcome.

A decision is a condition that is one of

* the test of an `if`, a `while`, a conditional expression, or an `if` of a comprehension;
* an operand of `and` and `or`. Of a value's last operand only if it is a comparison or a `not`: `a or default` decides
  about `a` alone;
* what `any()` and `all()` ask of each element;
* a `case` that does not match everything;
* an `except`: its outcomes are that its block has begun, and that it has caught something.

A condition that is made of others by `and`, `or` and `not` is none itself: its parts are. Neither are a constant and an
`assert`. A decision is known by its function and its text, so it stays the same when lines move.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass

REPORT = "__decided__"  # the function that is called with a decision's number and its outcome, and returns the outcome
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Decision:
    """`module`: its file in the tree. `function`: its qualified name, if it is in one. `text`: the condition's, with a
    number if the function has it more than once.
    """

    module: str
    function: str
    text: str


class Found(ast.NodeTransformer):
    """Visits a module once. `decisions`: those that it has met, in the order of their numbers."""

    def __init__(self, module: str, first_number: int = 0) -> None:
        self.decisions: list[Decision] = []
        self._module = module
        self._first_number = first_number
        self._scopes: list[str] = []
        self._uses: Counter[tuple[str, str]] = Counter()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._visit_scope(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._visit_scope(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._visit_scope(node)

    def _visit_scope(self, node: _Scope) -> ast.AST:
        self._scopes.append(node.name)
        self.generic_visit(node)
        self._scopes.pop()
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        node.test = self._condition(node.test)
        node.body = self._visit_all(node.body)
        node.orelse = self._visit_all(node.orelse)
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        node.test = self._condition(node.test)
        node.body = self._visit_all(node.body)
        node.orelse = self._visit_all(node.orelse)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        node.test = self._condition(node.test)
        node.body = self.visit(node.body)
        node.orelse = self.visit(node.orelse)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.iter = self.visit(node.iter)
        node.ifs = [self._condition(test) for test in node.ifs]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        *others, last = node.values
        decides = isinstance(last, ast.Compare) or (isinstance(last, ast.UnaryOp) and isinstance(last.op, ast.Not))
        node.values = [self._condition(value) for value in others]
        node.values.append(self._condition(last) if decides else self.visit(last))
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:
            case ast.Call(func=ast.Name(id="any" | "all"), args=[ast.GeneratorExp() as elements]):
                elements.generators = [self.visit(generator) for generator in elements.generators]
                elements.elt = self._condition(elements.elt)
                return node
        return self.generic_visit(node)

    def visit_Try(self, node: ast.Try) -> ast.AST:
        node.body = self._visit_all(node.body)
        for handler in node.handlers:
            caught = "" if handler.type is None else f" {ast.unparse(handler.type)}"
            number = self._number(f"except{caught}")
            node.body.insert(0, _statement(number, False, node.body[0]))
            handler.body = [_statement(number, True, handler.body[0]), *self._visit_all(handler.body)]
        node.orelse = self._visit_all(node.orelse)
        node.finalbody = self._visit_all(node.finalbody)
        return node

    def visit_Match(self, node: ast.Match) -> ast.AST:
        node.subject = self.visit(node.subject)
        refused: list[int] = []
        for case in node.cases:
            at = case.body[0]
            before = [_statement(number, False, at) for number in refused]
            if not _matches_all(case):
                guard = "" if case.guard is None else f" if {ast.unparse(case.guard)}"
                refused.append(self._number(f"case {ast.unparse(case.pattern)}{guard}"))
                before.append(_statement(refused[-1], True, at))
            case.body = [*before, *self._visit_all(case.body)]
        if not _matches_all(node.cases[-1]):
            statements: list[ast.stmt] = [_statement(number, False, node) for number in refused]
            node.cases.append(ast.match_case(ast.MatchAs(), None, statements))
            ast.fix_missing_locations(ast.copy_location(node, node))
        return node

    def _visit_all(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [self.visit(statement) for statement in statements]

    def _condition(self, node: ast.expr) -> ast.expr:
        match node:
            case ast.BoolOp():
                node.values = [self._condition(value) for value in node.values]
                return node
            case ast.UnaryOp(op=ast.Not(), operand=ast.BoolOp() | ast.UnaryOp() as operand):
                node.operand = self._condition(operand)
                return node
            case ast.Constant() | ast.Name(id="TYPE_CHECKING"):
                return node
        number = self._number(ast.unparse(node))
        visited: ast.expr = self.visit(node)
        return _call(number, visited, node)

    def _number(self, text: str) -> int:
        function = ".".join(self._scopes)
        self._uses[function, text] += 1
        use = self._uses[function, text]
        self.decisions.append(Decision(self._module, function, text if use == 1 else f"{text} ({use})"))
        return self._first_number + len(self.decisions) - 1


def decisions_of(module: str, source: str) -> list[Decision]:
    """Returns the decisions of a module in the order of its text."""
    found = Found(module)
    found.visit(ast.parse(source))
    return found.decisions


def _matches_all(case: ast.match_case) -> bool:
    return case.guard is None and isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None


def _statement(number: int, outcome: bool, at: ast.AST) -> ast.stmt:
    return ast.fix_missing_locations(ast.copy_location(ast.Expr(_call(number, ast.Constant(outcome), at)), at))


def _call(number: int, outcome: ast.expr, at: ast.AST) -> ast.expr:
    call = ast.Call(ast.Name(REPORT, ast.Load()), [ast.Constant(number), outcome], [])
    return ast.fix_missing_locations(ast.copy_location(call, at))
