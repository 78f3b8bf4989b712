"""WebDataset shards, put through the suite for formats. A record is the part of the archive that holds a sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest
from made_tars import member

from aiostream_data.formats import cutting
from aiostream_data.formats.webdataset import WebDatasetFormat
from aiostream_data.testing.formats import Damage, FormatSuite

END = bytes(512)
ONE = member("a/1.jpg") + member("a/1.json")
TWO = member("a/2.txt", b"")
LONG = member(f"{'d' * 120}/3.jpg", b"x" * 20, "pax")


def flipped(stream: bytes, at: int) -> bytes:
    return stream[:at] + bytes([stream[at] ^ 0x10]) + stream[at + 1 :]


class TestWebDataset(FormatSuite):
    description = WebDatasetFormat()
    stream = ONE + TWO + END
    records = (ONE, TWO)
    damaged = (
        Damage(TWO, [], 0),
        Damage(TWO + END + TWO, [TWO], len(TWO + END)),
        Damage(TWO + flipped(TWO, 3), [], 0),
    )


class TestDamagedMembers(FormatSuite):
    description = WebDatasetFormat()
    stream = TWO + END
    records: ClassVar[Sequence[bytes]] = (TWO,)
    damaged = (Damage(TWO + flipped(ONE, 515), [TWO], len(TWO)),)


class TestLongNamesAndTruncation(FormatSuite):
    description = WebDatasetFormat()
    stream = LONG + END
    records = (LONG,)
    damaged = (Damage(LONG[:-1], [], 0), Damage(LONG[:600], [], 0))


@pytest.fixture
def everything_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """All samples that span two blocks are collected as long records."""
    monkeypatch.setattr(cutting, "LONG_NBYTES", 1)


@pytest.mark.usefixtures("everything_is_long")
class TestLongSamples(TestDamagedMembers):
    stream = ONE + TWO + END
    records = (ONE, TWO)


@pytest.mark.usefixtures("everything_is_long")
class TestLongSamplesWithLongNames(TestLongNamesAndTruncation):
    pass


class TestNoEndMarker(FormatSuite):
    description = WebDatasetFormat(verify=False)
    stream = TWO
    records = (TWO,)
    damaged = (Damage(ONE + TWO[:-1], [], 0),)


class TestNoSamples(FormatSuite):
    description = WebDatasetFormat()
    stream = member("folder", type=b"5") + member("no_extension", b"ignored") + END
    records = ()
    damaged = (Damage(b"", [], 0), Damage(bytes(511), [], 0))
