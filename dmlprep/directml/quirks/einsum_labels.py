"""Einsum of five labels that sums one of them: rewritten as a matrix product of transposed operands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

import onnx_ir as ir

from dmlprep.directml.quirks.declaring import MEASURED, Edit, NodeFacts, Quirk

_Labels = list[str]


def _matches(node: NodeFacts) -> str:
    """The reason, if DirectML computes the equation wrong: two operands, five labels, one of them summed.

    The result is empty for two forms that are right. One is a matrix product: each operand has a label of the result
    that the other lacks. The other is an element-wise product that is summed along one dimension.
    """
    operands, arrow, result = _equation(node)
    terms = [set(term) for term in operands.split(",")]
    if len(terms) != 2 or "." in operands:
        return ""
    wanted = set(_wanted(operands, arrow, result))
    if len(terms[0] | terms[1]) != 5 or len(wanted) != 4:
        return ""
    if terms[0] == terms[1] or (wanted & (terms[0] - terms[1]) and wanted & (terms[1] - terms[0])):
        return ""
    return f"{operands}->{result}: five labels, one summed"


def _equation(node: NodeFacts) -> tuple[str, str, str]:
    return "".join(str(node.attribute("equation", "")).split()).partition("->")


def _wanted(operands: str, arrow: str, result: str) -> _Labels:
    """The labels of the result; without ``->`` in the equation, the labels that occur once, sorted."""
    return [*result] if arrow else sorted(label for label in operands if label != "," and operands.count(label) == 1)


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write Transpose, Reshape and MatMul. Shared labels are batches if the result has them; MatMul sums the others.

    DirectML supports at most two operands and no ellipsis; the CPU provider runs the other forms.
    """
    read = _read(facts)
    if isinstance(read, str):
        return read
    terms, wanted, sizes = read
    values = [v for v in edit.node.inputs if v is not None]
    work = _Work(edit, edit.output, sizes, facts.opset)
    labels, value = terms[0], values[0]
    if len(terms) > 1:
        labels, value = work.product((labels, value), (terms[1], values[1]), set(wanted))
    labels, value = work.summed(labels, value, set(wanted))
    value = work.ordered(labels, value, wanted)
    if value in values:
        value = edit.before("Identity", [value], like=edit.output)
    return edit.become(value)


def _read(facts: NodeFacts) -> tuple[list[_Labels], _Labels, dict[str, int]] | str:
    """The labels of each operand, the labels of the result, and the size of each label.

    If no rewrite is possible, the reason as a text.
    """
    out = facts.output()
    if out is None or out.type not in ("float", "float16"):
        return "DirectML has no MatMul for its type"
    if any(v is None or not v.static for v in facts.inputs):
        return "the sizes of its operands are unknown: pin the free dimensions of the model"
    operands, arrow, result = _equation(facts)
    terms = [[*term] for term in operands.split(",")]
    if len(terms) != len(facts.inputs) or len(terms) > 2 or "." in operands + result:
        return "its equation does not match its operands"
    sizes: dict[str, int] = {}
    for index, term in enumerate(terms):
        dims = facts.required(index).sizes
        if len(term) != len(dims):
            return "its equation does not match its operands"
        if len(set(term)) != len(term):
            return "a label occurs twice in one operand, which reads a diagonal"
        for label, size in zip(term, dims, strict=True):
            if sizes.setdefault(label, size) != size:
                return f"it broadcasts {label}"
    return terms, _wanted(operands, arrow, result), sizes


@dataclass
class _Work:
    """Adds nodes before the Einsum, on values whose dimensions have labels; ``sizes``: label -> size."""

    edit: Edit
    like: ir.Value
    sizes: dict[str, int]
    opset: int

    def product(
        self, a: tuple[_Labels, ir.Value], b: tuple[_Labels, ir.Value], later: set[str]
    ) -> tuple[_Labels, ir.Value]:
        """Multiply two values as [batch, rows, common] @ [batch, common, columns]; return the product with its labels.

        ``later`` are the labels that are still needed; the others are summed.
        """
        a_labels, x = self.summed(*a, later | set(b[0]))
        b_labels, y = self.summed(*b, later | set(a_labels))
        batch = [label for label in a_labels if label in b_labels and label in later]
        common = [label for label in a_labels if label in b_labels and label not in later]
        rows = [label for label in a_labels if label not in b_labels]
        columns = [label for label in b_labels if label not in a_labels]
        x = self.folded(self.ordered(a_labels, x, [*batch, *rows, *common]), batch, rows, common)
        y = self.folded(self.ordered(b_labels, y, [*batch, *common, *columns]), batch, common, columns)
        product = self.edit.before("MatMul", [x, y], like=self.like, shape=self.shape(batch, rows, columns))
        labels = [*batch, *rows, *columns]
        return labels, self.folded(product, *labels)

    def shape(self, *groups: Iterable[str]) -> list[int]:
        """The size of each dimension: the product of the sizes of its labels."""
        return [prod(self.sizes[label] for label in group) for group in groups]

    def summed(self, labels: _Labels, value: ir.Value, needed: set[str]) -> tuple[_Labels, ir.Value]:
        """Sum over the dimensions whose labels are not in ``needed``; return the remaining labels and the sum."""
        axes = [i for i, label in enumerate(labels) if label not in needed]
        if not axes:
            return labels, value
        rest = [label for label in labels if label in needed]
        by_input = self.opset >= 13
        operands = [value, self.edit.integers(axes, "axes")] if by_input else [value]
        attributes: dict[str, int | list[int]] = {"keepdims": 0} if by_input else {"axes": axes, "keepdims": 0}
        return rest, self.edit.before("ReduceSum", operands, attributes, like=self.like, shape=self.shape(*rest))

    def ordered(self, labels: _Labels, value: ir.Value, wanted: _Labels) -> ir.Value:
        if labels == wanted:
            return value
        perm = {"perm": [labels.index(label) for label in wanted]}
        return self.edit.before("Transpose", [value], perm, like=self.like, shape=self.shape(*wanted))

    def folded(self, value: ir.Value, *groups: Iterable[str]) -> ir.Value:
        shape = self.shape(*groups)
        return self.edit.before("Reshape", [value, self.edit.integers(shape, "shape")], like=self.like, shape=shape)


QUIRK = Quirk(
    id="einsum-labels",
    code="DP611",
    title="Einsum of five labels that sums one",
    ops=("Einsum",),
    outcome="wrong numbers",
    sources=(MEASURED + ": 240 random equations",),
    matches=_matches,
    rewrite=_rewrite,
)
