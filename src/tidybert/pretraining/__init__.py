"""From a corpus of token shards to a pre-trained RUN, which is a MODEL."""
