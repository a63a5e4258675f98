"""The first weights of a run: random, counted from the corpus, or a MODEL's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.configuration import LANGUAGE_MODELS, BertConfig, CausalConfig
from tidybert.configuration.family import BERT
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import UsageError, param, suggestion
from tidybert.modeling.bert import BertModel
from tidybert.modeling.encoder import BertLayer
from tidybert.modeling.heads import BertForPreTraining, CausalLM
from tidybert.pretraining.batches.instance_options import NextTokenOptions
from tidybert.pretraining.plan import PretrainingPlan
from tidybert.pretraining.pretraining_job import ModelShape, is_new, new_config
from tidybert.pretraining.pretraining_objective import PretrainingModel, build_pretraining_model

# Vectors of a corpus's tokens, counted from nearby tokens and not trained.
#
# Positive pointwise mutual information of a token with those up to four places away, and its
# largest singular vectors (Levy, Goldberg and Dagan 2015, "Improving distributional similarity with
# lessons learned from word embeddings": contexts' distribution smoothed by 0.75, singular values
# weighted by 0.5).  A pair counts by 1 / distance, as in GloVe (Pennington et al.  2014).  V tokens
# of the vocabulary, C context tokens, W width.

_REACH: Final = 4
_SMOOTHING: Final = 0.75
_ROUNDS: Final = 4  # of the randomized decomposition
# Bounds time, to half a minute, and the rest memory, to a gigabyte.
_MOST_TOKENS: Final = 2**25
_MOST_CELLS: Final = 2**25
_WINDOW: Final = 2**15
_CHUNK: Final = 2**20

Array = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class TokenVectors:
    """vectors (V, W) float32: of unit variance over all that were counted, 0 for the others.

    counts (V,) int64: how often each token was seen; ``num_tokens``: how many were read.
    """

    vectors: npt.NDArray[np.float32]
    counts: Array

    @property
    def num_tokens(self) -> int:
        return int(self.counts.sum())


def token_vectors(
    corpus: TokenCorpus, width: int, *, shares: Sequence[float] = (1.0,), seed: int = 0
) -> TokenVectors:
    """Count the tokens near each token, and decompose the counts.

    Reads at most 34 million tokens, by their ``shares`` from the corpora that ``corpus`` joins, and
    evenly spread over each.  The contexts are the most
    frequent tokens, as many as the bound on memory allows: half of a vocabulary of 8,192.  With
    fewer than W contexts, the last columns are 0.
    """
    from sklearn.utils.extmath import randomized_svd

    size = int(corpus.manifest.vocabulary["vocab_size"])
    pieces = [
        piece
        for each, share in zip(corpus.corpora, shares, strict=True)
        for piece in _selected(each, int(share * _MOST_TOKENS))
    ]
    counts = np.zeros(size, np.int64)
    for piece in pieces:
        counts += np.bincount(piece, minlength=size)
    number = min(size, max(1, _MOST_CELLS // size))
    contexts = np.argsort(-counts, kind="stable")[:number]
    contexts = contexts[counts[contexts] > 0]
    association = _association(_nearby(pieces, size, contexts))
    rank = min(width, len(contexts), int((counts > 0).sum()))
    vectors = np.zeros((size, width), np.float32)
    if rank:
        # scikit-learn takes seeds of 32 bits.
        left, values, _ = randomized_svd(
            association, rank, n_iter=_ROUNDS, random_state=seed % 2**32
        )
        vectors[:, :rank] = left * np.sqrt(values)
        vectors[counts == 0] = 0.0
    spread = vectors[counts > 0].std() if rank else 0.0
    return TokenVectors(vectors / spread if spread else vectors, counts)


def _selected(corpus: TokenCorpus, most_tokens: int) -> list[Ids]:
    """Windows of the corpus, all of it or evenly spread; one may cross the end of a document."""
    number, size = -(-most_tokens // _WINDOW), corpus.num_tokens
    starts = np.arange(0, size, _WINDOW)
    if len(starts) > number:
        starts = np.arange(number) * size // number
    # No window crosses into another file.
    after = corpus.first_token[corpus.first_token.searchsorted(starts, "right")]
    ends = np.minimum(starts + _WINDOW, after)
    pieces = corpus.tokens(starts, ends)
    for ids in pieces:
        corpus.check_ids(ids)
    return [ids.astype(np.int32) for ids in pieces]


def _nearby(pieces: list[Ids], size: int, contexts: Array) -> npt.NDArray[np.float32]:
    """(V, C): how often a context is near a token, weighted by 1 / distance, within a piece."""
    column = np.full(size + 1, -1, np.int64)
    column[contexts] = np.arange(len(contexts))
    # An id that is neither token nor context separates the pieces.
    border = np.full(_REACH, size, np.int32)
    ids = np.concatenate([part for piece in pieces for part in (piece, border)])
    found = np.zeros(size * len(contexts), np.float32)
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK + _REACH]
        keys, weights = [], []
        for distance in range(1, _REACH + 1):
            left, right = chunk[:_CHUNK], chunk[distance : _CHUNK + distance]
            left = left[: len(right)]
            for one, other in ((left, right), (right, left)):
                places = column[other]
                counted = (places >= 0) & (one < size)
                keys.append(one[counted] * np.int64(len(contexts)) + places[counted])
                weights.append(np.full(len(keys[-1]), 1 / distance))
        found += np.bincount(
            np.concatenate(keys), np.concatenate(weights), minlength=len(found)
        ).astype(np.float32)
    return found.reshape(size, len(contexts))


def _association(found: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Positive pointwise mutual information, in place."""
    total = found.sum(dtype=np.float64)
    rows = found.sum(1, dtype=np.float64)
    smoothed = found.sum(0, dtype=np.float64) ** _SMOOTHING
    expected = smoothed / max(smoothed.sum(), 1e-30)
    with np.errstate(divide="ignore", invalid="ignore"):
        np.log(found, out=found)
        found -= np.log(rows).astype(np.float32)[:, None]
        found -= np.log(expected).astype(np.float32)
    found[~(found > 0)] = 0.0
    return found if total else np.zeros_like(found)


# Attention heads that look at a token's neighbours from the first step on.
#
# A BERT with random weights must first learn that positions matter, and that a masked word's
# neighbours matter most.  Until then its loss stays near that of the words' frequencies.  Here the
# position embeddings begin as sines and cosines, in which a step to the side is a rotation.  A
# head's queries begin as that rotation of its keys, so it attends to the token at a fixed offset.
# Cordonnier et al.  2020 ("On the relationship between self-attention and convolutional layers")
# show that attention can compute a convolution; d'Ascoli et al.  2021 ("ConViT") begin with one.
# Training may change all of it, and the model's form is BERT's.

OFFSETS: Final = (-1, 1, -2, 2, -3, 3, -4, 4)
"""Where the heads of each layer look, in this order; further heads stay random."""
# The neighbour's score; a token anywhere else has 0 on average.
_SCORE: Final = 7.5


@torch.no_grad()
def attend_to_neighbours(model: BertModel, standard_deviation: float, seed: int) -> None:
    """Overwrite the position embeddings, and the queries and keys of up to eight heads a layer."""
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    width, num_heads = config.hidden_size, config.num_attention_heads
    head_width = width // num_heads
    frequencies = math.pi * torch.rand(width // 2, generator=generator)
    positions = model.embeddings.position_embeddings.weight
    angles = torch.arange(float(len(positions)))[:, None] * frequencies
    waves = torch.stack((angles.sin(), angles.cos()), 2).flatten(1)
    positions[:, : waves.shape[1]] = math.sqrt(2) * standard_deviation * waves
    # Half of a normalized row's variance is position, half of it sines, half cosines; attention
    # divides scores by the root of the head's width.
    gain = math.sqrt(2 * _SCORE / math.sqrt(head_width))
    for layer in model.layers:
        assert isinstance(layer, BertLayer)
        weight = layer.attention.query_key_value.weight
        for head, offset in zip(range(num_heads), OFFSETS, strict=False):
            chosen = torch.randperm(width // 2, generator=generator)[: head_width // 2]
            first = head * head_width
            query, key = _rotating(frequencies, chosen, offset, head_width, width)
            weight[first : first + head_width] = gain * query
            weight[width + first : width + first + head_width] = gain * key


def _rotating(
    frequencies: Tensor, chosen: Tensor, offset: int, head_width: int, width: int
) -> tuple[Tensor, Tensor]:
    """Matrices (D, H) that make a query equal to the key at the offset."""
    query, key = torch.zeros(head_width, width), torch.zeros(head_width, width)
    for row, number in enumerate(chosen.tolist()):
        angle = float(frequencies[number]) * offset
        sine, cosine = slice(2 * number, 2 * number + 1), slice(2 * number + 1, 2 * number + 2)
        key[2 * row, sine] = key[2 * row + 1, cosine] = 1.0
        query[2 * row, sine] = query[2 * row + 1, cosine] = math.cos(angle)
        query[2 * row, cosine] = math.sin(angle)
        query[2 * row + 1, sine] = -math.sin(angle)
    return query, key


# Standard deviation of counted embeddings; benchmarks/NOTES.md has the measured gain.
_CORPUS_START_STD: Final = 0.05


def build_model(
    model: str | Path, plan: PretrainingPlan, shape: ModelShape
) -> tuple[PretrainingModel, BertConfig]:
    """The model with its heads, and the configuration that is saved with it."""
    if isinstance(plan.instances, NextTokenOptions):
        return _language_model(str(model), plan, plan.instances)
    build = build_pretraining_model(plan.instances.objective)
    vocabulary = plan.corpus.manifest.vocabulary
    rate = plan.arguments.setting("dropout")
    if is_new(model):
        config = new_config(model, shape, int(vocabulary["vocab_size"]))
        network = build(_with_dropout(config, rate))
        plan.reporter.tell(
            f"{model}: random weights, {config.num_parameters / 1e6:.1f} M parameters"
        )
        return network, config
    for name, value in shape.given.items():
        raise UsageError(
            f"{param(name, value)} is for new weights, and {model} has weights; name a size such "
            "as mini, or a config.json"
        )
    directory = ModelDirectory.open(model)
    directory.require_bert()
    if build is BertForPreTraining and directory.config.family is not BERT:
        raise UsageError(
            f"{param('objective', plan.instances.objective)}: pairs of segments are BERT's, and "
            f"the model_type of {model} is {directory.config.model_type}: give "
            f"{param('objective', 'mlm')}"
        )
    if directory.tokenizer.vocabulary.sha256 != vocabulary["sha256"]:
        raise UsageError(
            f"{model} and the corpus in {plan.corpus.directory} have different vocabularies; "
            f"build the corpus with {param('vocab', model)}"
        )
    if other := plan.corpus.other_settings(directory.tokenizer):
        raise UsageError(
            f"{model} and the corpus in {plan.corpus.directory} were made with other tokenizers "
            f"({' and '.join(other)} in {model} alone); build the corpus with "
            f"{param('vocab', model)}"
        )
    # Next sentence prediction reads [CLS].
    config = directory.config.with_pooling("cls")
    network, report = directory.build(build, config=_with_dropout(config, rate))
    plan.reporter.tell(report.summary())
    return network, config


def _language_model(
    size: str, plan: PretrainingPlan, instances: NextTokenOptions
) -> tuple[PretrainingModel, BertConfig]:
    """A transformer with random weights, which takes sequences as long as the run has."""
    if size not in LANGUAGE_MODELS:
        raise UsageError(
            f"{param('model', size)}{suggestion(size, LANGUAGE_MODELS)}: expected one of "
            f"{', '.join(LANGUAGE_MODELS)}"
        )
    config = CausalConfig(
        **LANGUAGE_MODELS[size],
        vocab_size=plan.tokenizer().vocab_size,
        max_position_embeddings=plan.longest,
        positions=instances.positions,
    )
    network = CausalLM(_with_dropout(config, plan.arguments.setting("dropout")))
    plan.reporter.tell(f"{size}: random weights, {config.num_parameters / 1e6:.1f} M parameters")
    return network, config


def start_from_corpus(network: PretrainingModel, plan: PretrainingPlan) -> None:
    """Overwrite what the corpus shows: like words, frequencies, neighbours.  For the CPU."""
    assert not isinstance(network, CausalLM)
    embeddings = network.bert.embeddings.word_embeddings.weight
    found = token_vectors(
        plan.corpus, embeddings.shape[1], shares=plan.shares, seed=plan.arguments.seed
    )
    scale = _CORPUS_START_STD / network.config.initializer_range
    seen = torch.from_numpy(found.counts > 0)
    with torch.no_grad():
        # Unseen words keep random vectors of the same size.
        embeddings *= scale
        embeddings[seen] = _CORPUS_START_STD * torch.from_numpy(found.vectors)[seen]
        frequencies = torch.from_numpy(found.counts + 1.0)
        network.mlm.bias.copy_((frequencies / frequencies.sum()).log())
    attend_to_neighbours(network.bert, _CORPUS_START_STD, plan.arguments.seed)
    plan.reporter.tell(
        f"start from the corpus: {int(seen.sum()):,} words' embeddings from their neighbours in "
        f"{found.num_tokens:,} tokens, and heads that look at neighbours; "
        f"{param('initial_weights', 'random')} leaves that out"
    )


def _with_dropout(config: BertConfig, rate: float) -> BertConfig:
    return replace(config, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)
