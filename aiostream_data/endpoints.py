"""Custom endpoints of object stores, from options and environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

_ENDPOINTS: Final = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "gs": ("STORAGE_EMULATOR_HOST",),
}


def endpoint_of(scheme: str, options: Mapping[str, Any]) -> str:
    """Return the custom endpoint for a URL scheme from options or environment variables.

    Return "" for the default endpoint.
    """
    clients: Any = options.get("client_kwargs")
    given = options.get("endpoint_url") or (clients.get("endpoint_url") if isinstance(clients, Mapping) else None)
    for name in _ENDPOINTS.get(scheme, ()):
        given = given or os.environ.get(name)
    return str(given or "")
