"""Fallback for :func:`.exchange.ordinary_head`."""

from __future__ import annotations


def ordinary_head(head: bytes) -> tuple[int, dict[str, str], int] | None:
    """Return None: the strict parser must judge every response head."""
    return None
