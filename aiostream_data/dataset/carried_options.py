"""Arguments of ``open()`` that a dataset carries, and that operators pass on to the datasets they return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from types import MappingProxyType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from aiostream_data.arguments import flag, seconds_or_none
from aiostream_data.dataset.chain import Chain
from aiostream_data.errors import ArgumentTypeError
from aiostream_data.failing.policies import log_path, policy_of
from aiostream_data.plan.base import native_threads_of, seed_of
from aiostream_data.rows.structure import flatten

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D", bound=Chain)


def _shard_cache(value: Any) -> None:
    from aiostream_data.storage.cache.options import ShardCache

    ShardCache.of(value)


def _prices(value: Any) -> None:
    from aiostream_data.metrics.request_prices import Prices

    Prices.of(value)


def _dead_letters(value: Any) -> None:
    if value is not None:
        log_path("dead_letters", value)


_CHECKS: Final[Mapping[str, Callable[[Any], object]]] = MappingProxyType(
    {
        **{name: partial(flag, name) for name in ("deterministic", "debug", "full_tracebacks", "profile")},
        **{name: partial(seconds_or_none, name) for name in ("stall_after", "stage_timeout")},
        "seed": seed_of,
        "native_threads": native_threads_of,
        "on_error": policy_of,
        "dead_letters": _dead_letters,
        "shard_cache": _shard_cache,
        "prices": _prices,
    }
)
"""Check of each option. Other arguments of ``open()`` belong to one run or one process."""


def checked_options(given: Mapping[str, Any], check_limit: Callable[[Any], object]) -> dict[str, Any]:
    """Return options after checking their names and values.

    Args:
        check_limit: Check of ``memory_limit``.

    Raises:
        PlanError: An option is unknown, belongs to a single run, or has an invalid value.
    """
    checks = {**_CHECKS, "memory_limit": check_limit}
    for name, value in given.items():
        if name not in checks:
            raise ArgumentTypeError(
                f"with_options() has no option {name}; its options are {', '.join(sorted(checks))}. "
                "Pass other arguments to open()."
            )
        checks[name](value)
    return dict(given)


def options_of(dataset: Any) -> Mapping[str, Any]:
    """Return the options that a dataset carries; none for other objects."""
    found: Mapping[str, Any] = dataset.carried_options if isinstance(dataset, Chain) else {}
    return found


def merged_options(datasets: Iterable[Any]) -> dict[str, Any]:
    """Merge the options of several datasets, also inside tuples and dicts. Later datasets take precedence."""
    merged: dict[str, Any] = {}
    for dataset in datasets:
        for leaf in flatten(dataset)[1]:
            merged |= options_of(leaf)
    return merged


def completed_by_options(method: Callable[Concatenate[D, P], R]) -> Callable[Concatenate[D, P], R]:
    """Decorate ``open()``: pass the options of the dataset for all keyword arguments that the caller does not pass."""

    @wraps(method)
    def complete(self: D, /, *args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in options_of(self).items():
            kwargs.setdefault(name, value)
        return method(self, *args, **kwargs)

    return complete
