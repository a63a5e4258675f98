"""A corpus of text files into token shards, from which pre-training reads."""
