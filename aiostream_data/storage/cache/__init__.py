"""Pieces of shards kept on local disk or in memory, so that a later pass asks the store for nothing."""
