"""Share botocore's parsed service descriptions between all sessions of a process.

Every botocore session parses a few megabytes of JSON before it creates its first client. Parsing takes a quarter of a
second and would block the event loop for that time. Sessions created by this module share one loader with the parsed
data. Sharing the data is safe, because clients only read it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

_SHARED: Final = ("endpoints", "partitions", "sdk-default-configuration", "_retry")
_OF_S3: Final = ("service-2", "endpoint-rule-set-1")
"""Service descriptions that an S3 client loads. A session loads other descriptions itself if its botocore version needs
them."""


def session_of(settings: dict[str, Any]) -> Any:
    """Return an aiobotocore session. Blocking: the first call parses megabytes of JSON files.

    Raises:
        botocore.exceptions.BotoCoreError: The settings or the AWS configuration files are invalid.
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
            loader.load_service_model("s3", name, api_version=None)  # the same cache key as clients use
    return loader
