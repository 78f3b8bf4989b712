"""Translate ``storage_options`` into the options of the library deltalake."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiostream_data.endpoints import endpoint_of
from aiostream_data.errors import PlanError
from aiostream_data.option_names import check_options
from aiostream_data.storage.stores import options_of

_OWN: Final = frozenset(
    {"reader", "max_connections", "max_requests_per_second", "max_bytes_per_second", "connect_timeout", "verify"}
    | {"first_byte_timeout", "read_timeout", "total_timeout", "retry_attempts", "retry_total_s", "hedge"}
    | {"retry_connect_total_s", "endpoint_url"}
)
"""Options that do not decide which object is read, or that are translated by :func:`.endpoint_of`."""

_SCHEMES: Final = ("file", "s3", "gs")


def delta_options(scheme: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of deltalake for a URL scheme.

    Args:
        options: ``storage_options`` as for all sources, also nested under the scheme.

    Raises:
        PlanError: deltalake has no such store, or no equivalent of an option.
    """
    if scheme not in _SCHEMES:
        raise PlanError(f"from_delta() reads local folders, s3:// and gs://, got {scheme}://")
    if scheme == "file":
        return {}
    given = options_of(scheme, options)
    check_options(scheme, given)
    translate: Callable[[Mapping[str, Any]], dict[str, str]] = {"s3": _s3, "gs": _gs}[scheme]
    found = translate({name: value for name, value in given.items() if name not in _OWN and value is not None})
    endpoint = endpoint_of(scheme, given)
    if endpoint:
        found["AWS_ENDPOINT_URL" if scheme == "s3" else "google_base_url"] = endpoint
    if given.get("retry_total_s") is not None:
        found["retry_timeout"] = f"{round(1000 * given['retry_total_s'])}ms"
    if endpoint.lower().startswith("http://"):
        found["allow_http"] = "true"
    return found


def _s3(options: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name, value in options.items():
        if name in _S3_NAMES:
            found[_S3_NAMES[name]] = str(value)
        elif name == "client_kwargs" and set(value) <= {"region_name", "endpoint_url"}:
            found |= {"AWS_REGION": str(value["region_name"])} if value.get("region_name") else {}
        elif name == "anon":
            found |= {"AWS_SKIP_SIGNATURE": "true"} if value else {}
        else:
            raise _unknown(name)
    return found


_S3_NAMES: Final = {
    "key": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "profile": "AWS_PROFILE",
}


def _gs(options: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name, value in options.items():
        if name == "token" and value == "anon":
            found["google_skip_signature"] = "true"
        elif name == "token" and isinstance(value, Mapping):
            found["google_service_account_key"] = json.dumps(dict(value))
        elif name == "token" and isinstance(value, str) and value not in _GS_WORDS:
            found["google_service_account_path"] = value
        elif name != "project" and not (name == "token" and value in _GS_WORDS):
            raise _unknown(name)
    return found


_GS_WORDS: Final = ("google_default", "cache", "cloud")
"""Values of ``token`` with which the libraries look for credentials by themselves."""


def _unknown(name: str) -> PlanError:
    return PlanError(
        f"from_delta() cannot pass storage_options[{name!r}] to deltalake, which reads the log of the table. Remove "
        "the option, or set it by environment variables."
    )
