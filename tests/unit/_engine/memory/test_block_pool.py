"""Blocks of memory are lent again when nothing looks at them any more."""

from __future__ import annotations

import mmap
import threading

import numpy as np
import pytest

from aiostream_data._engine.memory.buffers import GRAIN_NBYTES, HUGE_PAGE_NBYTES, BlockPool


def address(block: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> int:
    return int(block.__array_interface__["data"][0])


def test_a_dropped_block_is_lent_again() -> None:
    pool = BlockPool(1 << 20)
    block = pool.lend(1000)
    first = address(block)
    assert len(block) == 1000
    del block
    assert pool.idle_nbytes == GRAIN_NBYTES
    assert address(pool.lend(2000)) == first


def test_a_view_keeps_its_block() -> None:
    pool = BlockPool(1 << 20)
    block = pool.lend(1000)
    block[:] = 7
    view = block[10:20]
    del block
    other = pool.lend(1000)
    other[:] = 9
    assert view.tolist() == [7] * 10
    del view
    assert pool.idle_nbytes == GRAIN_NBYTES


def test_blocks_beyond_the_limit_are_not_kept() -> None:
    pool = BlockPool(GRAIN_NBYTES)
    blocks = [pool.lend(1) for _ in range(3)]
    del blocks
    assert pool.idle_nbytes == GRAIN_NBYTES


def test_blocks_of_a_size_that_is_not_used_any_more_make_room_for_those_that_are() -> None:
    pool = BlockPool(8 * GRAIN_NBYTES)
    small = [pool.lend(1) for _ in range(8)]
    del small
    assert pool.idle_nbytes == 8 * GRAIN_NBYTES
    large = pool.lend(3 * GRAIN_NBYTES)
    first = address(large)
    del large
    assert pool.idle_nbytes == 8 * GRAIN_NBYTES
    assert address(pool.lend(3 * GRAIN_NBYTES)) == first
    too_large = pool.lend(9 * GRAIN_NBYTES)
    del too_large
    assert pool.idle_nbytes == 8 * GRAIN_NBYTES


@pytest.mark.parametrize("nbytes", [HUGE_PAGE_NBYTES, HUGE_PAGE_NBYTES + 1, 8 * HUGE_PAGE_NBYTES + (64 << 10)])
def test_large_blocks_consist_of_whole_huge_pages_and_lend_all_their_bytes(nbytes: int) -> None:
    pool = BlockPool(1 << 30)
    blocks = [pool.lend(nbytes) for _ in range(3)]
    for number, block in enumerate(blocks):
        if hasattr(mmap, "MADV_HUGEPAGE"):
            assert address(block) % HUGE_PAGE_NBYTES == 0
        assert len(block) == nbytes
        block[:] = number
    assert [int(block.min()) for block in blocks] == [int(block.max()) for block in blocks] == [0, 1, 2]


def test_a_closed_pool_keeps_nothing_and_leaves_what_is_lent_alone() -> None:
    pool = BlockPool(1 << 20)
    block = pool.lend(1)
    pool.close()
    block[:] = 1
    del block
    assert pool.idle_nbytes == 0


def test_blocks_come_back_from_any_thread() -> None:
    pool = BlockPool(64 << 20)

    def borrow() -> None:
        for number in range(500):
            block = pool.lend(GRAIN_NBYTES)
            block[0] = number % 256
            assert block[0] == number % 256

    threads = [threading.Thread(target=borrow) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < pool.idle_nbytes <= 8 * GRAIN_NBYTES  # a thread holds its last block until it has the next one
