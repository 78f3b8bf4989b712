"""Which of several processes this one is, and what all of them agree on without asking each other."""

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
