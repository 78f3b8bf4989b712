"""Cache of shard pieces on local disk or in memory, so that later epochs read them without requests to the store."""
