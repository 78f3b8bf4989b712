"""Pass elements to an aggregator of the user, as ``aggregate`` does, and save and restore its state."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aiostream_data.errors import PlanError

_METHODS = ("add", "flush")
_STATE_METHODS = ("state", "restore")


class Aggregating:
    """One pass of an aggregator over elements.

    Args:
        factory: Function that returns a new aggregator.

    Attributes:
        aggregator: The object that ``factory`` returned.

    Raises:
        PlanError: The aggregator does not have the methods ``add`` and ``flush``, or a method is a coroutine function.
            Or the aggregator has only one of the methods ``state`` and ``restore``.
    """

    def __init__(self, factory: Callable[[], Any]) -> None:
        self.aggregator = factory()
        kind = type(self.aggregator).__name__
        for name in (*_METHODS, *_STATE_METHODS):
            method = getattr(self.aggregator, name, None)
            if name in _METHODS and not callable(method):
                raise PlanError(f"aggregate() needs an object with the methods add() and flush(), got {kind}.")
            if inspect.iscoroutinefunction(method):
                raise PlanError(
                    f"{name}() of an aggregator must be a plain method, but {kind}.{name} is a coroutine function."
                )
        found = [name for name in _STATE_METHODS if callable(getattr(self.aggregator, name, None))]
        if len(found) == 1:
            raise PlanError(f"aggregate() needs both state() and restore(), or none, but {kind} has only {found[0]}().")
        self.has_state = bool(found)

    def add(self, element: Any) -> list[Any]:
        """Pass an element to the aggregator. Return its outputs.

        Raises:
            PlanError: The aggregator did not return an iterable.
        """
        return list(_outputs("add", self.aggregator.add(element)))

    def flush(self) -> Iterator[Any]:
        """Return the outputs at the end of the input.

        Raises:
            PlanError: The aggregator did not return an iterable.
        """
        return _outputs("flush", self.aggregator.flush())

    def state(self) -> Any:
        """Return the state of the aggregator, which has the method ``state``."""
        return self.aggregator.state()

    def restore(self, state: Any) -> None:
        """Restore a state of the aggregator, which has the method ``restore``."""
        self.aggregator.restore(state)


def _outputs(method: str, returned: Any) -> Iterator[Any]:
    if not isinstance(returned, (str, bytes, Mapping)):
        try:
            return iter(returned)
        except TypeError:
            pass
    raise PlanError(
        f"{method}() of an aggregator must return an iterable of outputs, such as a list, but returned "
        f"{type(returned).__name__}."
    )
