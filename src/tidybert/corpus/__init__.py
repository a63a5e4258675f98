"""Corpora: documents of any size, and the token shards that pre-training reads."""
