"""Ranks of processes that share a data set: detection, distribution of rows, padding, and shared shard lists."""

from aiostream_data.ranks.find import choose_ranks, find_ranks
from aiostream_data.ranks.loader_workers import LoaderWorkers, choose_workers
from aiostream_data.ranks.world import Policy, Ranks, Sharing, Tail, rows_per_rank, too_few

__all__ = [
    "LoaderWorkers",
    "Policy",
    "Ranks",
    "Sharing",
    "Tail",
    "choose_ranks",
    "choose_workers",
    "find_ranks",
    "rows_per_rank",
    "too_few",
]
