"""User limits on the load of a store: requests per second, bytes per second, and connections."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from aiostream_data.errors import PlanError
from aiostream_data.redaction import shown_option

_REQUESTS: Final = "max_requests_per_second"
_NBYTES: Final = "max_bytes_per_second"
_CONNECTIONS: Final = "max_connections"


@dataclass(frozen=True, kw_only=True, slots=True)
class Caps:
    """Limits that a user has set for one loader, for each host or bucket. None means no limit.

    Each limit applies to the combined load of all loaders in this process that have limits.

    Attributes:
        requests_per_s: Maximum number of requests of any kind per second.
        nbytes_per_s: Maximum number of requested bytes per second.
        connections: Maximum number of concurrent requests.
    """

    requests_per_s: float | None = None
    nbytes_per_s: float | None = None
    connections: int | None = None

    def __bool__(self) -> bool:
        return (self.requests_per_s, self.nbytes_per_s, self.connections) != (None, None, None)


def take_cap_options(options: MutableMapping[str, Any]) -> Caps:
    """Remove ``max_requests_per_second`` and ``max_bytes_per_second`` from ``storage_options`` and return the limits.

    The option ``max_connections`` is also read, but stays in ``storage_options``.

    Raises:
        PlanError: A limit is not a positive number, or ``max_connections`` is not a positive integer.
    """
    return Caps(
        requests_per_s=_rate(_REQUESTS, options),
        nbytes_per_s=_rate(_NBYTES, options),
        connections=_whole(_CONNECTIONS, options),
    )


def has_rates(options: Mapping[str, Any]) -> bool:
    """Return True if ``storage_options`` limit requests or bytes per second."""
    return any(options.get(name) is not None for name in (_REQUESTS, _NBYTES))


def _rate(name: str, options: MutableMapping[str, Any]) -> float | None:
    value = options.pop(name, None)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (value > 0 and isfinite(value)):
        raise PlanError(f"{name} must be a number above 0, got {shown_option(value)}; omit it for no limit")
    return float(value)


def _whole(name: str, options: MutableMapping[str, Any]) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PlanError(f"{name} must be a whole number of at least 1, got {shown_option(value)}")
    return value
