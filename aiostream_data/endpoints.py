"""Where the objects of a scheme are, as far as their URLs do not say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

_ENDPOINTS: Final = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "gs": ("STORAGE_EMULATOR_HOST",),
}


def endpoint_of(scheme: str, options: Mapping[str, Any]) -> str:
    """Return where the objects of a scheme are, as far as the URL does not say; "" for the usual place."""
    clients: Any = options.get("client_kwargs")
    given = options.get("endpoint_url") or (clients.get("endpoint_url") if isinstance(clients, Mapping) else None)
    for name in _ENDPOINTS.get(scheme, ()):
        given = given or os.environ.get(name)
    return str(given or "")
