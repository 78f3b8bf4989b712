"""Count skipped and replaced records against the error budget of their stage, and log each record once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import time
from typing import Any

from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.failures.failed_row import Failed
from aiostream_data._engine.resume.element_origins import element_origin
from aiostream_data._engine.resume.origins import Origins
from aiostream_data._engine.resume.row_keys import expression
from aiostream_data.errors import ErrorBudgetError, RecordError
from aiostream_data.executors.base import Executor
from aiostream_data.failing.dead_letter_log import DeadLetterLog
from aiostream_data.failing.policies import OnError, handling_of
from aiostream_data.plan.base import Node
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.plan.tables import TableFile
from aiostream_data.safe_url import safe_text

DID = {"skip": "skipped", "replace": "replaced"}


@dataclass(slots=True)
class _Account:
    """Number of rows and failures of one stage, over all epochs of the loader."""

    rows: int = 0
    failures: int = 0


class DeadLetters:
    """Error budgets and dead-letter logs (logs of failed records) of one loader.

    Only the event loop's thread may use this class; worker threads write the files.
    """

    def __init__(self, path: str | None, origins: Origins, seed: int, pool: Executor) -> None:
        """Set the log file for stages that have no log file of their own. None disables that log."""
        self._path = path
        self._origins = origins
        self._seed = seed
        self._pool = pool
        self._accounts: dict[str, _Account] = {}
        self._logs: dict[str, DeadLetterLog] = {}

    async def take(self, place: str, nth: int, node: Node, rows: int, failed: list[Failed]) -> None:
        """Count and log the failed records of one hop (one call on a worker).

        Args:
            place, nth: Position of the stage in the plan, and its number among the stages that have the same label.
            rows: Number of rows that the hop (one call on a worker) processed.
            failed: Failed rows, in the order of the input.

        Raises:
            PartlyDone: The failures exceed the error budget. The error's ``done`` attribute is the number of failures
                within the error budget; these failures have been logged. ``error`` is the ErrorBudgetError.
            DeadLetterError: The log cannot be written.
        """
        allowed = self.count(place, node, rows, [one.row for one in failed])
        if allowed and self.logs(node):
            await self.write(nth, node, lambda: failed[:allowed])
        if allowed < len(failed):
            last = failed[allowed]
            raise PartlyDone(allowed, self.spent(place, node, last, _cause(last)))

    def logs(self, node: Node) -> bool:
        """Return True if the skipped and replaced rows of a node are logged."""
        return self.logs_with(getattr(node, "on_error", None))

    def logs_with(self, on_error: OnError) -> bool:
        """Return True if the skipped and replaced rows of a node with this error policy are logged."""
        return self._path_with(on_error) is not None

    def count(self, place: str, node: Node, rows: int, at: Sequence[int]) -> int:
        """Count the processed rows and the failed rows of a stage.

        Return how many of the failures are within the error budget.

        Args:
            at: Indices of the failed rows among the ``rows`` processed rows.
        """
        account = self._accounts.setdefault(place, _Account())
        handling = handling_of(getattr(node, "on_error", None))
        for index, row in enumerate(at):
            account.failures += 1
            if handling.is_spent(account.failures, account.rows + row + 1):
                account.rows += row + 1
                return index
        account.rows += rows
        return len(at)

    def spent(self, place: str, node: Node, last: Failed, cause: BaseException) -> ErrorBudgetError:
        """Return the error to raise for the failure ``last``, which exceeded the error budget in :meth:`count`."""
        error = _budget_error(node, self._accounts[place], last)
        error.__cause__ = cause
        return error

    async def write(self, nth: int, node: Node, told: Callable[[], Sequence[Failed]]) -> None:
        """Write failures to the log on a worker thread. The worker thread calls ``told`` to get the failures.

        Raises:
            DeadLetterError: The log cannot be written.
        """
        path = self._path_of(node)
        if path is None:
            return
        log = self._logs.setdefault(path, DeadLetterLog(path))
        outcome = await self._pool.submit(self._write, log, nth, node.label, told)
        if outcome.error is not None:
            raise outcome.error

    def _path_of(self, node: Node) -> str | None:
        return self._path_with(getattr(node, "on_error", None))

    def _path_with(self, on_error: OnError) -> str | None:
        return handling_of(on_error).path or self._path

    def close(self) -> None:
        """Close every log."""
        for log in self._logs.values():
            log.close()

    def _write(self, log: DeadLetterLog, nth: int, label: str, told: Callable[[], Sequence[Failed]]) -> None:
        log.append([self._entry(nth, label, one) for one in told()])

    def _entry(self, nth: int, label: str, failed: Failed) -> dict[str, Any]:
        origin = element_origin(failed.ids, failed.made_of, self._origins, self._seed)
        damage = failed.damage
        return {
            "url": origin.url,
            "offset": origin.offset if damage is None or damage.offset is None else damage.offset,
            **({} if damage is None else {"nbytes": damage.nbytes, "lost": damage.lost}),
            "index": origin.index,
            "epoch": origin.epoch,
            "stage": label,
            "error": safe_text(failed.error),
            "traceback": safe_text(failed.text),
            "element": failed.element,
            "done": DID[failed.kind],
            "time": round(time(), 3),
            "nth": nth,
            "seed": self._seed,
            "row": dict(origin.row),
            "name": [label, nth, *expression(failed.ids.tolist()[0], self._origins.stable)],
        }


def _budget_error(node: Node, account: _Account, last: Failed) -> ErrorBudgetError:
    what = "records or files" if isinstance(node, (ReadFiles, TableFile)) else "records"
    budget = handling_of(getattr(node, "on_error", None)).budget
    return ErrorBudgetError(node.label, account.failures, account.rows, what, budget, last.error)


def _cause(failed: Failed) -> RecordError:
    error = RecordError(failed.error)
    error.type_name = failed.error.partition(":")[0]
    error.worker_traceback = failed.text
    error.add_note(f"element: {failed.element}")
    error.add_note("traceback of the record's error:\n" + failed.text)
    return error
