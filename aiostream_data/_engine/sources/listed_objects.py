"""Compare an object with its entry in the list of files or in the index that named it.

A dataset of one file, such as a Parquet file, is made from the name of the file. The row id of the name leads to the
list, which also contains the size and the version of the object.
"""

from __future__ import annotations

from typing import Final

from aiostream_data._engine.flow.context import RunContext
from aiostream_data.errors import ObjectChangedError
from aiostream_data.rows.id_arrays import SPLIT_BITS
from aiostream_data.rows.records import ShardRef
from aiostream_data.safe_url import safe_url
from aiostream_data.storage.body import check_version
from aiostream_data.storage.stores import GATED, NEAR
from aiostream_data.storage.urls import split_url

COMPARED: Final = GATED | NEAR
"""Schemes of stores whose listings and answers report the same version of an object."""


def check_as_listed(context: RunContext, found: ShardRef) -> None:
    """Compare an object with its entry in the list that named it. An unknown size or version matches all objects.

    Args:
        context: Run context of the dataset that reads the object.

    Raises:
        ObjectChangedError: The size or the version of the object differs from the list.
    """
    listed = listed_object(context, found.url)
    if listed is not None:
        check_same(listed, found)


def check_same(listed: ShardRef, found: ShardRef) -> None:
    """Compare an object with the same object as it was listed. See :func:`check_as_listed`."""
    if None not in (listed.nbytes, found.nbytes) and listed.nbytes != found.nbytes:
        raise ObjectChangedError(
            safe_url(found.url), f"the object has {found.nbytes} bytes, but {listed.nbytes} bytes were listed"
        )
    if split_url(found.url).scheme in COMPARED:
        check_version(found.url, listed.version, found.version)


def listed_object(context: RunContext, url: str) -> ShardRef | None:
    """Return an object as it was listed; None unless a list of files named the object of a dataset."""
    if context.made_from is None:
        return None
    for split, ordinal in context.made_from.pairs_of(0):
        object_of = context.services.origins.namespace(split >> SPLIT_BITS).object_of
        listed = None if object_of is None else object_of(ordinal)
        if listed is not None and listed.url == url:
            return listed
    return None
