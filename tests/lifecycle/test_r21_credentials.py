"""R21: credentials that expire while a run goes on are renewed once for all requests, and none of those fails."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from leaks import leaves_nothing
from reading import CONTENT, QUICK

from aiostream_data.errors import CredentialsError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.object_api.accounts import Account

EXPIRIES = 4
READERS = 16
READS = 100
"""Reads that succeed before credentials expire."""
NBYTES = 1_000


class Rotation:
    """Hands out credentials that live until :meth:`expire`, and tells the server."""

    def __init__(self, server: FaultServer) -> None:
        self._server = server
        self._accounts: list[Account] = []

    def next(self) -> Account:
        number = len(self._accounts)
        names: dict[str, Any] = (
            {"key": f"key{number}", "secret": f"secret{number}"} if self._server.dialect == "s3" else {}
        )
        self._accounts.append(Account(**names, token=f"token{number}"))
        self._server.set_accounts(*self._accounts)
        return self._accounts[-1]

    def expire(self) -> None:
        self._accounts = [replace(account, expires_s=0.0) for account in self._accounts]
        self._server.set_accounts(*self._accounts)

    @property
    def handed_out(self) -> int:
        return len(self._accounts)


async def _read_through(stores: StoreSet, url: str, rotation: Rotation, expiries: int) -> None:
    """Read from several coroutines while credentials expire so often; raises where a read failed."""
    shard = ShardRef(url, len(CONTENT))
    good, is_over = 0, False

    async def reader() -> None:
        nonlocal good
        buffer = bytearray(NBYTES)
        while not is_over:
            await stores.read_into(shard, 0, memoryview(buffer))
            assert buffer == CONTENT[:NBYTES]
            good += 1

    async def expire_them() -> None:
        nonlocal is_over
        for number in range(1, expiries + 2):
            while rotation.handed_out < number or good < READS * number:
                await asyncio.sleep(0.002)
            if number <= expiries:
                await asyncio.to_thread(rotation.expire)
        is_over = True

    async with asyncio.TaskGroup() as group:
        for _ in range(READERS):
            group.create_task(reader())
        group.create_task(expire_them())


def _run(options: dict[str, Any], url: str, rotation: Rotation, expiries: int = EXPIRIES) -> int:
    """Return the number of failed reads that the stores counted."""

    async def main() -> int:
        stores = StoreSet({**QUICK, **options}, asyncio.to_thread)
        try:
            await asyncio.wait_for(_read_through(stores, url, rotation, expiries), 60)
            return stores.counters.failures
        finally:
            await stores.aclose()

    return asyncio.run(main())


@pytest.fixture
def aws_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return tmp_path / "credentials"


def _write(path: Path, account: Account) -> None:
    path.write_text(
        f"[default]\naws_access_key_id={account.key}\naws_secret_access_key={account.secret}\n"
        f"aws_session_token={account.token}\n"
    )


def _aws_options(server: FaultServer) -> dict[str, Any]:
    return {name: value for name, value in server.storage_options.items() if name not in ("key", "secret")}


@pytest.mark.parametrize("reader", ["plain", "library"])
def test_r21_a_file_with_new_credentials_is_read_again_when_the_old_ones_have_expired(
    aws_file: Path, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aiostream_data.storage import s3

    with leaves_nothing(), fault_server("s3") as server:
        url = server.put("bucket/key", CONTENT)
        rotation = Rotation(server)
        make = s3.make_file_system

        def make_with_fresh_ones(options: Any) -> Any:  # as whatever keeps such a file does in time
            _write(aws_file, rotation.next())
            return make(options)

        monkeypatch.setattr(s3, "make_file_system", make_with_fresh_ones)
        failures = _run({**_aws_options(server), "reader": reader}, url, rotation)
        refused = sum(seen.status in (400, 403) for seen in server.log() if seen.kind == "get")
    assert failures == 0
    assert rotation.handed_out == EXPIRIES + 1  # once for all that were refused
    assert refused >= EXPIRIES
    assert refused <= READERS * rotation.handed_out


def test_r21_credentials_that_a_look_up_finds_expired_are_renewed_too(
    aws_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a HEAD has no body, and so no code that would say so."""
    from aiostream_data.storage import s3

    with leaves_nothing(), fault_server("s3") as server:
        url = server.put("bucket/key", CONTENT)
        old = Account(key="old", secret="old", token="old", expires_s=time.time() - 1.0)
        new = Account(key="new", secret="new", token="new", expires_s=time.time() + 60.0)
        server.set_accounts(old, new)
        make, to_come = s3.make_file_system, [old, new]

        def make_with_the_next(options: Any) -> Any:
            _write(aws_file, to_come.pop(0))
            return make(options)

        monkeypatch.setattr(s3, "make_file_system", make_with_the_next)

        async def main() -> tuple[int | None, int]:
            stores = StoreSet({**QUICK, **_aws_options(server)}, asyncio.to_thread)
            try:
                return (await stores.info(url)).nbytes, stores.counters.credentials_renewed
            finally:
                await stores.aclose()

        assert asyncio.run(asyncio.wait_for(main(), 60)) == (len(CONTENT), 1)


def test_r21_credentials_that_nobody_renews_are_called_expired(aws_file: Path) -> None:
    with leaves_nothing(), fault_server("s3") as server:
        url = server.put("bucket/key", CONTENT)
        rotation = Rotation(server)
        _write(aws_file, rotation.next())
        with pytest.raises(ExceptionGroup) as group:
            _run(_aws_options(server), url, rotation)
    caught = group.value.exceptions[0]
    assert isinstance(caught, CredentialsError)
    assert "expired" in str(caught)
    assert caught.is_expired
    assert "secret0" not in str(caught)
    assert "token0" not in str(caught)


def test_r21_a_token_of_google_is_renewed_once_for_all_when_it_is_refused() -> None:
    from google.auth.credentials import Credentials

    with leaves_nothing(), fault_server("gcs") as server:
        url = server.put("bucket/key", CONTENT)
        rotation = Rotation(server)

        class Rotating(Credentials):
            """What google-auth makes of a metadata server whose tokens live shortly."""

            def refresh(self, request: Any) -> None:
                self.token = rotation.next().token  # and nothing says for how long it is good

        credentials = Rotating()  # type: ignore[no-untyped-call]
        failures = _run({**server.storage_options, "token": credentials}, url, rotation)
    assert failures == 0
    assert rotation.handed_out == EXPIRIES + 1
