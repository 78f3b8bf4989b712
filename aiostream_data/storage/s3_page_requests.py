"""Request pages of S3 listings (ListObjectsV2) with plain GET requests.

The library needs about 150 ms of CPU time for a page of 1,000 keys, because botocore builds several Python objects for
each XML element.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from aiostream_data.errors import StorageError, WrongAnswerError
from aiostream_data.storage.key_search import PageRequest
from aiostream_data.storage.s3_errors import WrongRegion
from aiostream_data.storage.s3_listing import NotAListing
from aiostream_data.storage.s3_plain import DIALECT, BucketAddress, S3Plain, is_plain_bucket
from aiostream_data.storage.urls import safe_url
from aiostream_data.storage.wire.chunked import OversizedBody
from aiostream_data.storage.wire.client import Refused
from aiostream_data.storage.wire.route import Route

MOST_PAGE_NBYTES: Final = 64 << 20
"""Maximum size of a page. A page of 1,000 keys of S3 has at most 4 MB; some stores ignore the limit of 1,000 keys."""


async def fetch_page(route: Route, plain: S3Plain, name: str, asked: PageRequest, url: str) -> bytes | bytearray | None:
    """Return the XML of one page of the listing of a bucket, or None if the library must request the page.

    Args:
        route: Client selection and request limits of the store.
        plain: Builder of plain requests.
        name: Name of the bucket.
        asked: The page.
        url: Pattern of the search, for error messages.

    Raises:
        StorageError: The request failed.
        NotAListing: The page is too large.
    """
    if not is_plain_bucket(name):
        return None
    bucket = plain.known(name) or await plain.bucket(name)
    try:
        return await _fetch_from(route, plain, bucket, name, asked, url)
    except WrongRegion as error:
        if not error.region:  # the library asks other operations for the region
            route.note_unusual(bucket.target, "LIST")
            return None
        if error.region == bucket.region:
            raise
        bucket = await plain.bucket_in(name, error.region)
    return await _fetch_from(route, plain, bucket, name, asked, url)


def query_of(asked: PageRequest) -> str:
    """Return the query that requests a page, in the order that a signature needs."""
    fields = {
        "continuation-token": asked.token,
        "delimiter": "/" if asked.folded else "",
        "encoding-type": "url",  # XML cannot contain all characters of keys
        "list-type": "2",
        "max-keys": str(asked.most),
    }
    written = "".join(f"{name}={quote(value, safe='')}&" for name, value in fields.items() if value)
    return f"{written}prefix={quote(asked.prefix, safe='')}"


async def _fetch_from(
    route: Route, plain: S3Plain, bucket: BucketAddress, name: str, asked: PageRequest, url: str
) -> bytes | bytearray | None:
    if not route.leads_to(bucket.target, "LIST"):
        return None
    path, query = bucket.target.path.removesuffix("/") or "/", query_of(asked)
    async with route.listing(f"s3://{name}/{asked.prefix}"):
        headers = await plain.listing_headers(bucket, path, query)
        target = bucket.target._replace(path=f"{path}?{query}")
        try:
            return await route.fetch(target, headers, _LISTING, url, MOST_PAGE_NBYTES)
        except OversizedBody as error:
            raise NotAListing(f"cannot read a page of the listing: {error}") from None


def _refusal(url: str, answer: Refused) -> StorageError:
    if 200 <= answer.status < 300:
        return WrongAnswerError(safe_url(url), f"the answer is not a listing: its status is {answer.status}")
    return DIALECT.refusal(url, answer)


_LISTING: Final = DIALECT._replace(refusal=_refusal)
