"""Check elements against the spec that the user declared with ``spec=``."""

from __future__ import annotations

from dataclasses import dataclass

from aiostream_data._engine.calls.spec_fit import columns_fit, misfit
from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.flow.fused_steps import RowForRowStep
from aiostream_data.errors import SignatureError
from aiostream_data.plan.declared import CheckSpec
from aiostream_data.plan.makers import made_by
from aiostream_data.rows.records import Chunk, Columns


@dataclass
class CheckSpecStep(RowForRowStep):
    """Step of a ``CheckSpec`` plan node. It emits the rows unchanged."""

    def push(self, chunk: Chunk) -> Chunk | None:
        node: CheckSpec = self.node
        if isinstance(chunk, Columns) and columns_fit(chunk, node.structure, node.leaves):
            return chunk
        for row, element in enumerate(chunk.elements()):
            found = misfit(element, node.structure, node.leaves)
            if found:
                raise PartlyDone(chunk.slice(0, row) if row else None, self._error(chunk, row, found))
        return chunk

    def _error(self, chunk: Chunk, row: int, found: str) -> SignatureError:
        node: CheckSpec = self.node
        error = SignatureError(
            f"an element of {node.operator}() does not match spec=: {found}. "
            "Correct the function, or pass the right spec=."
        )
        error.add_note(f"record: {self.context.services.origins.describe(chunk.ids, row)}")
        maker = made_by(node)
        if maker is not None:
            error.add_note(maker)
        return error
