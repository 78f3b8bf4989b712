"""Count the losses of files with row groups in the order in which ``interleave`` merges their rows.

The files are read ahead, several at a time. An error budget that counted their losses while they are read would be
spent at a row that depends on the speed of the reads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from aiostream_data._engine.failures.shard_losses import ShardLosses
from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.flow.loss_account import LossAccount, is_exact
from aiostream_data.failing.policies import handling_of
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Interleave
from aiostream_data.plan.tables import TableFile, reads_files


class Counts(Protocol):
    """Interface of the merge that counts losses.

    Attributes:
        account: Counter of losses, which must be set before the first loss.
    """

    account: LossAccount | None


def counts_losses(context: RunContext, node: Interleave) -> bool:
    """Return True if a stage must count the losses of its files; False if the order in which they are counted is free.

    Args:
        context: Run context of the stage.
    """
    function = node.function
    return reads_files(function) and is_exact(context.services.dead_letters, function.on_error)


class FileLosses:
    """Losses of the files of one stage. Loop thread only.

    Args:
        merge: Merge of the rows of the files. Its account is set when the first file is known.
    """

    def __init__(self, merge: Counts) -> None:
        self._merge = merge

    def know(self, file: Node, context: RunContext) -> None:
        """Prepare the account of all files, given one of them.

        Args:
            context: Run context of the file.
        """
        if self._merge.account is None and isinstance(file, TableFile) and handling_of(file.on_error).kind == "skip":
            self._merge.account = LossAccount(context, file, context.counters(file))

    def of(self, file: Node, context: RunContext) -> tuple[RunContext, ShardLosses | None]:
        """Return the run context for a file that tells its losses to the merge, and these losses.

        The losses are None if the data set is no file.
        """
        self.know(file, context)
        if self._merge.account is None or not isinstance(file, TableFile):
            return context, None
        losses = ShardLosses()
        return replace(context, losses=losses), losses
