"""Read the rank of this process from frameworks that are already loaded and initialized. Imports no framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

from aiostream_data.ranks.world import Ranks

_SEED_BITS: Final = (1 << 62) - 1


def ranks_from_frameworks(modules: Mapping[str, ModuleType]) -> list[Ranks]:
    """Return the ranks reported by each loaded framework that is initialized for several processes."""
    found = []
    for name, ask in ASK.items():
        module = modules.get(name)
        ranks = None if module is None else ask(module)
        if ranks is not None:
            found.append(ranks)
    return found


def torch_worker(modules: Mapping[str, ModuleType]) -> tuple[int, int, int] | None:
    """Return (worker id, number of workers, common seed) in a worker process of PyTorch's DataLoader.

    Return None outside a DataLoader worker, with a single worker, or if the data set is not an IterableDataset. For a
    data set with indices, the DataLoader itself distributes the indices to its workers.
    """
    data = modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    if info is None or info.num_workers == 1 or not isinstance(info.dataset, data.IterableDataset):  # type: ignore[union-attr]
        return None
    return info.id, info.num_workers, (info.seed - info.id) & _SEED_BITS


def _torch(distributed: Any) -> Ranks | None:
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    return Ranks(distributed.get_rank(), distributed.get_world_size(), source="torch.distributed")


def _jax(jax: Any) -> Ranks | None:
    # Check this before calling jax.process_count(), which would start a backend and reserve the accelerator.
    is_initialized = getattr(getattr(jax, "distributed", None), "is_initialized", None)
    if is_initialized is None or not is_initialized():
        return None
    return Ranks(jax.process_index(), jax.process_count(), source="jax.distributed")


def _ray_train(train: Any) -> Ranks | None:
    try:
        context = train.get_context()
        rank, world_size = context.get_world_rank(), context.get_world_size()
    except (RuntimeError, AttributeError):  # this process is not a worker of a trainer
        return None
    # Outside a worker, some releases return rank 0 of 1. Treat this result as "not initialized".
    return Ranks(rank, world_size, source="ray.train") if world_size and world_size > 1 else None


ASK: Final[dict[str, Callable[[Any], Ranks | None]]] = {
    "torch.distributed": _torch,
    "jax": _jax,
    "ray.train": _ray_train,
}
