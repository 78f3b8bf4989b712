"""Records that were skipped or replaced: counted against their stage's budget, and written down once each."""

from __future__ import annotations

from dataclasses import dataclass
from time import time
from typing import Any

from aiostream_data._engine.failed import Failed
from aiostream_data._engine.failures import PartlyDone
from aiostream_data._engine.names import expression
from aiostream_data._engine.origin_of import element_origin
from aiostream_data._engine.origins import Origins
from aiostream_data.dead_letter_log import DeadLetterLog
from aiostream_data.errors import ErrorBudgetError, RecordError
from aiostream_data.executors.base import Executor
from aiostream_data.plan.base import Node
from aiostream_data.policies import RATE_ROWS, Handling, handling_of
from aiostream_data.safe_url import safe_text

DID = {"skip": "skipped", "replace": "replaced"}


@dataclass(slots=True)
class _Account:
    """What one stage has taken and failed on, over all epochs of the loader."""

    rows: int = 0
    failures: int = 0


class DeadLetters:
    """One per loader. Loop thread only; files are written on the pool."""

    def __init__(self, path: str | None, origins: Origins, seed: int, pool: Executor) -> None:
        """Write to ``path`` what stages without a log of their own leave out; nowhere with None."""
        self._path = path
        self._origins = origins
        self._seed = seed
        self._pool = pool
        self._accounts: dict[str, _Account] = {}
        self._logs: dict[str, DeadLetterLog] = {}

    async def take(self, place: str, nth: int, node: Node, rows: int, failed: list[Failed]) -> None:
        """Count and write down the records of one hop.

        Args:
            place, nth: Name of the stage in its loader, and its number among those of its label in the plan.
            rows: Rows that the stage took in the hop.
            failed: Those on which it failed, in order.

        Raises:
            PartlyDone: They are more than the policy allows; those before are written down, and ``done`` is how many
                they are. ``error`` is the ErrorBudgetError.
            DeadLetterError: The log cannot be written.
        """
        account = self._accounts.setdefault(place, _Account())
        handling = handling_of(getattr(node, "on_error", None))
        allowed = failed
        spent: ErrorBudgetError | None = None
        for index, one in enumerate(failed):
            account.failures += 1
            if handling.is_spent(account.failures, account.rows + one.row + 1):
                allowed = failed[:index]
                spent = _budget_error(node, account, one, handling)
                break
        account.rows += rows
        path = handling.path or self._path
        if path is not None and allowed:
            log = self._logs.setdefault(path, DeadLetterLog(path))
            outcome = await self._pool.submit(self._write, log, nth, node.label, allowed)
            if outcome.error is not None:
                raise outcome.error
        if spent is not None:
            spent.__cause__ = one.cause or _cause(one)
            raise PartlyDone(len(allowed), spent)

    def close(self) -> None:
        """Close every log."""
        for log in self._logs.values():
            log.close()

    def _write(self, log: DeadLetterLog, nth: int, label: str, failed: list[Failed]) -> None:
        log.append([self._entry(nth, label, one) for one in failed])

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


def _budget_error(node: Node, account: _Account, last: Failed, handling: Handling) -> ErrorBudgetError:
    rules = []
    if handling.max_count is not None:
        rules.append(f"{handling.max_count}")
    if handling.max_rate is not None:
        rules.append(f"{handling.max_rate:g} of them, and of the first {RATE_ROWS:,} rows as of {RATE_ROWS:,}")
    rows = account.rows + last.row + 1
    return ErrorBudgetError(node.label, account.failures, rows, " and ".join(rules), last.error)


def _cause(failed: Failed) -> RecordError:
    error = RecordError(failed.error)
    error.type_name = failed.error.partition(":")[0]
    error.worker_traceback = failed.text
    error.add_note(f"element: {failed.element}")
    error.add_note("traceback of the record's error:\n" + failed.text)
    return error
