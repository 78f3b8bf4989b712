"""The node that checks elements against a declared spec: ``spec=`` of ``map`` and other operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from aiostream_data.plan.columns import ColumnOperator
from aiostream_data.plan.spec import ArraySpec, Spec, described, spec_of
from aiostream_data.rows.structure import Structure


@dataclass(frozen=True, eq=False, kw_only=True)
class CheckSpec(ColumnOperator):
    """Node that emits its input elements, and fails at the first one that does not match a declared spec.

    Attributes:
        structure: Structure of an element.
        leaves: Spec of each leaf, in leaf order.
        operator: Name of the method that received ``spec=``.
    """

    is_transparent: ClassVar[bool] = True

    structure: Structure
    leaves: tuple[ArraySpec, ...]
    operator: str

    @property
    def label(self) -> str:
        return "check_spec"

    def detail(self) -> str:
        return self.structure.described(map(described, self.leaves))


@spec_of.register
def _(node: CheckSpec) -> Spec:
    return node.structure, node.leaves
