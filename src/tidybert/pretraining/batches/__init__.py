"""From token shards to micro-batches: pairs, masked words and their random numbers."""
