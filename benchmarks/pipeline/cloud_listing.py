"""Pages of an S3 listing as files, which nginx sends: it serves files, and cannot list them itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

LISTING = ".listing"
"""Folder of the pages, beside the files that they list. A page has its continuation token as its name."""

PAGE_KEYS = 1_000
"""Keys of a page: the maximum that S3 allows."""

FIRST = "0"


def write_listing(folder: Path, paths: Sequence[Path]) -> None:
    """Write the pages that list some files of a folder of a bucket; their keys begin with the folder's name."""
    (folder / LISTING).mkdir()
    starts = range(0, len(paths), PAGE_KEYS)
    for page, start in enumerate(starts):
        entries = "".join(_entry(f"{folder.name}/{path.name}", path) for path in paths[start : start + PAGE_KEYS])
        more = page + 1 < len(starts)
        following = f"<NextContinuationToken>{page + 1}</NextContinuationToken>" if more else ""
        (folder / LISTING / str(page)).write_text(
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{following}{entries}</ListBucketResult>"
        )


def nginx_location() -> str:
    """Return settings of nginx that answer the listing of a folder with its page."""
    return (
        "location ~ ^/[^/]+/?$ {\nrewrite_by_lua_block {\nlocal asked = ngx.req.get_uri_args()\n"
        f"local page = (asked.prefix or '') .. '{LISTING}/' .. (asked['continuation-token'] or '{FIRST}')\n"
        "ngx.req.set_uri(ngx.var.uri:gsub('/$', '') .. '/' .. page, true)\n}\n}\n"
    )


def _entry(key: str, path: Path) -> str:
    """Return one object of a page; its ETag is the one that nginx sends with the file."""
    status = path.stat()
    modified = datetime.fromtimestamp(int(status.st_mtime), UTC)
    return (
        f"<Contents><Key>{key}</Key><LastModified>{modified:%Y-%m-%dT%H:%M:%S}.000Z</LastModified>"
        f"<ETag>&quot;{int(status.st_mtime):x}-{status.st_size:x}&quot;</ETag><Size>{status.st_size}</Size>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
    )
