"""From a corpus of token shards to a pre-trained RUN, which is a MODEL."""

from tidybert.pretraining.pretraining_run import PretrainingCallbacks, pretrain

__all__ = ["PretrainingCallbacks", "pretrain"]
