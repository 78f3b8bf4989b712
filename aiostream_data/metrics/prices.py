"""What requests and bytes cost, by a table that the user gives: none is known here, since prices change."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiostream_data.arguments import shown
from aiostream_data.errors import PlanError

COUNTERS: Final = {"GET": "gets", "HEAD": "heads", "LIST": "lists", "egress": "received_nbytes"}
"""What a table may name, and the counter that it is multiplied with."""

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*")
_UNITS: Final = {"GET": 1_000, "HEAD": 1_000, "LIST": 1_000, "egress": 1_000_000_000}


@dataclass(frozen=True)
class Prices:
    """A price for each kind of request and for bytes, of every store or of those named.

    Attributes:
        by_store: Prices by the store's scheme; under "" those of all others. In any currency, per 1,000 requests
            ("GET", "HEAD", "LIST") and per 10**9 bytes that came ("egress"). What is not named costs nothing.
    """

    by_store: Mapping[str, Mapping[str, float]]

    @classmethod
    def of(cls, value: Any) -> Prices | None:
        """Return what the argument ``prices`` stands for: one table, or one for each scheme.

        Raises:
            PlanError: It names something that is not counted, or a price that is none.
        """
        if value is None or isinstance(value, Prices):
            return value
        if not isinstance(value, Mapping):
            raise PlanError(f"prices is a table such as {{'GET': 0.0004, 'egress': 0.09}}, got {shown(value)}")
        nested = {_scheme(name): _checked(table) for name, table in value.items() if isinstance(table, Mapping)}
        common = {name: price for name, price in value.items() if not isinstance(price, Mapping)}
        return cls({**nested, "": _checked(common) if common or not nested else {}})

    def cost(self, stores: Mapping[str, Mapping[str, float]]) -> float:
        """Return what stores cost so far, given their counters by scheme."""
        return math.fsum(
            counters.get(COUNTERS[kind], 0) / _UNITS[kind] * price
            for scheme, counters in stores.items()
            for kind, price in self.by_store.get(scheme, self.by_store[""]).items()
        )


def _scheme(name: Any) -> str:
    scheme = name.removesuffix("://").lower() if isinstance(name, str) else ""
    if not _SCHEME.fullmatch(scheme):
        raise PlanError(f"prices are for stores by their scheme, such as 's3', got some for {shown(name)}")
    return scheme


def _checked(table: Mapping[Any, Any]) -> dict[str, float]:
    if not table:
        raise PlanError(f"a table of prices must name one of {', '.join(COUNTERS)}, got an empty one")
    for kind, price in table.items():
        if kind not in COUNTERS:
            raise PlanError(f"prices are for {', '.join(COUNTERS)}, got one for {shown(kind)}")
        if isinstance(price, bool) or not isinstance(price, (int, float)) or not 0 <= price < math.inf:
            raise PlanError(f"the price of {kind} must be a number of at least 0, got {shown(price)}")
    return {kind: float(price) for kind, price in table.items()}
