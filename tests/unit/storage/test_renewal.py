"""Requests whose credentials expire wait for new ones, as long as the store accepts those that it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from aiostream_data.errors import CredentialsError
from aiostream_data.storage.renewal import Renewal


def refused(*, is_expired: bool = True) -> CredentialsError:
    error = CredentialsError("s3://bucket/key", "the test says so")
    error.is_expired = is_expired
    return error


async def nothing_new() -> None:
    """Load the same credentials again."""


class Answers:
    """Answers of a store to attempts: an error is raised, anything else returned."""

    def __init__(self, *answers: str | CredentialsError) -> None:
        self._answers: Iterator[str | CredentialsError] = iter(answers)

    async def __call__(self) -> str:
        answer = next(self._answers)
        if isinstance(answer, CredentialsError):
            raise answer
        return answer


def test_a_refused_request_is_sent_again_with_renewed_credentials() -> None:
    renewal = Renewal(nothing_new)
    assert asyncio.run(renewal.trying(Answers(refused(), "read"))) == "read"
    assert renewal.renewed == 1


def test_renewed_credentials_that_the_store_never_accepted_are_not_renewed_again() -> None:
    renewal = Renewal(nothing_new)
    with pytest.raises(CredentialsError):
        asyncio.run(renewal.trying(Answers(refused(), refused(), "never asked")))
    assert renewal.renewed == 1


def test_other_refusals_are_raised_at_once() -> None:
    renewal = Renewal(nothing_new)
    with pytest.raises(CredentialsError):
        asyncio.run(renewal.trying(Answers(refused(is_expired=False), "never asked")))
    assert renewal.renewed == 0


def test_a_slow_request_outlives_several_sets_of_credentials() -> None:
    """Others use each set while the slow request is under way, and find it expired before its answer is back."""

    async def main() -> tuple[str, int]:
        renewal = Renewal(nothing_new)
        answers = Answers(refused(), refused(), refused(), "read")

        async def slow_attempt() -> str:
            try:
                return await answers()
            except CredentialsError:
                await renewal.trying(Answers("read by another"))
                await renewal.trying(Answers(refused(), "read by another with new credentials"))
                raise

        return await renewal.trying(slow_attempt), renewal.renewed

    assert asyncio.run(main()) == ("read", 3)


def test_a_request_that_never_meets_good_credentials_ends() -> None:
    async def main() -> None:
        renewal = Renewal(nothing_new)

        async def unlucky() -> str:
            await renewal.trying(Answers("read by another"))
            raise refused()

        await renewal.trying(unlucky)

    with pytest.raises(CredentialsError):
        asyncio.run(main())
