"""botocore's descriptions of Amazon's services: parsed once in a process, on a worker thread.

Every session of botocore parses some megabytes of JSON before its first client is there, which takes a quarter of a
second, and on an event loop holds up everything else for that long. Sessions made here share what was parsed. It is
what clients of one session share anyway: they only look things up in it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

_SHARED: Final = ("endpoints", "partitions", "sdk-default-configuration", "_retry")
_OF_S3: Final = ("service-2", "endpoint-rule-set-1")
"""What a client of S3 loads; of what another version of botocore loads besides, each session does so itself."""


def session_of(settings: dict[str, Any]) -> Any:
    """Return an aiobotocore session with these settings. Blocking: reads files, and the first time much of it.

    Raises:
        botocore.exceptions.BotoCoreError: The settings, or the configuration files, make no sense.
    """
    from aiobotocore.session import AioSession

    session = AioSession(**settings)
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    return session


@lru_cache(maxsize=4)
def _loader(data_path: str | None) -> Any:
    from botocore.exceptions import DataNotFoundError
    from botocore.loaders import create_loader

    loader = create_loader(data_path)
    with suppress(DataNotFoundError):
        for name in _SHARED:
            loader.load_data(name)
        for name in _OF_S3:
            loader.load_service_model("s3", name, api_version=None)  # called as clients do, to be found by them
    return loader
