"""Cache of shard pieces on local disk or in memory, so that later epochs read cached pieces without requests to the
store."""
