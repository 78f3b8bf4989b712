"""One file per contender and scenario; each has ``batches(workload, variant)``."""
