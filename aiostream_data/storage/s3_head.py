"""Ask for the size and version of S3 objects with plain HEAD requests.

The library needs about a millisecond of CPU time for a HEAD request, six times as long as a plain request takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.s3_plain import DIALECT, S3Plain, is_plain_bucket, target_of
from aiostream_data.storage.wire.plain_read import THROTTLED
from aiostream_data.storage.wire.route import Route

Hear: TypeAlias = Callable[[str, str, Mapping[str, str]], None]
"""Function that receives the URL, version and headers of an object, which may contain its checksum."""

_UNEXPLAINED: Final = frozenset(range(300, 500)) - THROTTLED
"""HTTP statuses after which the library asks again, because HEAD responses contain neither reason nor region."""


async def ask_for_object(
    route: Route, plain: S3Plain, url: str, name: str, key: str, hear: Hear | None
) -> ShardRef | None:
    """Return the size and version of an object, or None if the library must ask or explain.

    Args:
        route: Client selection and request limits of the store.
        plain: Builder of plain requests.
        name, key: Bucket and key of the object.
        hear: Receives the headers, with checksums if the store knows any; None to ask for no checksums.

    Raises:
        StorageError: The server is unreachable, busy or sends an invalid response.
    """
    if not plain.describes or not is_plain_bucket(name):
        return None
    bucket = plain.known(name) or await plain.bucket(name)
    target = target_of(bucket, key)
    if not route.leads_to(target):
        return None
    headers = await plain.head_headers(bucket, target, asks_checksums=hear is not None)
    answer = await route.describe(target, headers, DIALECT, url, _UNEXPLAINED)
    if answer is None or answer.length is None or "etag" not in answer.headers:
        return None
    version = answer.headers["etag"]
    if hear is not None:
        hear(url, version, answer.headers)
    return ShardRef(url, answer.length, version)
