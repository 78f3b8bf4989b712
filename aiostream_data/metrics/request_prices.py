"""Compute the cost of requests and received bytes from a price table that the user provides.

The package contains no price table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiostream_data.arguments import shown
from aiostream_data.errors import PlanError

COUNTERS: Final = {"GET": "gets", "HEAD": "heads", "LIST": "lists", "egress": "received_nbytes"}
"""Keys of a price table, and the counter to which each price applies."""

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*")
_UNITS: Final = {"GET": 1_000, "HEAD": 1_000, "LIST": 1_000, "egress": 1_000_000_000}


@dataclass(frozen=True)
class Prices:
    """Prices of requests and of received bytes, for all stores together or for each store.

    Attributes:
        by_store: Price tables by URL scheme. The key "" applies to all other stores. Prices can use any currency, per
            1,000 requests ("GET", "HEAD", "LIST") or per 10**9 received bytes ("egress"). Missing prices are 0.
    """

    by_store: Mapping[str, Mapping[str, float]]

    @classmethod
    def of(cls, value: Any) -> Prices | None:
        """Convert the user's argument ``prices``: one price table, or a dict from URL scheme to price table.

        Raises:
            PlanError: A key is unknown, or a price is not a number greater than or equal to 0.
        """
        if value is None or isinstance(value, Prices):
            return value
        if not isinstance(value, Mapping):
            raise PlanError(f"prices must be a dict such as {{'GET': 0.0004, 'egress': 0.09}}, got {shown(value)}")
        nested = {_scheme(name): _checked(table) for name, table in value.items() if isinstance(table, Mapping)}
        common = {name: price for name, price in value.items() if not isinstance(price, Mapping)}
        return cls({**nested, "": _checked(common) if common or not nested else {}})

    def cost(self, stores: Mapping[str, Mapping[str, float]]) -> float:
        """Return the total cost, given the counters of each store by URL scheme."""
        return math.fsum(
            counters.get(COUNTERS[kind], 0) / _UNITS[kind] * price
            for scheme, counters in stores.items()
            for kind, price in self.by_store.get(scheme, self.by_store[""]).items()
        )


def _scheme(name: Any) -> str:
    scheme = name.removesuffix("://").lower() if isinstance(name, str) else ""
    if not _SCHEME.fullmatch(scheme):
        raise PlanError(f"prices must be keyed by URL scheme, such as 's3', got {shown(name)}")
    return scheme


def _checked(table: Mapping[Any, Any]) -> dict[str, float]:
    if not table:
        raise PlanError(f"a price table must have one of {', '.join(COUNTERS)}, got an empty table")
    for kind, price in table.items():
        if kind not in COUNTERS:
            raise PlanError(f"prices must be for {', '.join(COUNTERS)}, got {shown(kind)}")
        if isinstance(price, bool) or not isinstance(price, (int, float)) or not 0 <= price < math.inf:
            raise PlanError(f"the price of {kind} must be a number of at least 0, got {shown(price)}")
    return {kind: float(price) for kind, price in table.items()}
