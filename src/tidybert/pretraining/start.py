"""The first weights of a run: random, counted from the corpus, or a MODEL's."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.configuration import LANGUAGE_MODELS, BertConfig, CausalConfig
from tidybert.errors import UsageError, param, suggestion
from tidybert.modeling.heads import CausalLM
from tidybert.pretraining.batches.instance_options import NextTokenOptions
from tidybert.pretraining.cooccurrence import token_vectors
from tidybert.pretraining.model_shape import ModelShape, is_new, new_config, refuse_shape
from tidybert.pretraining.neighbour_heads import attend_to_neighbours
from tidybert.pretraining.objectives import PretrainingModel, build_pretraining_model
from tidybert.pretraining.plan import PretrainingPlan

# Standard deviation of counted embeddings; benchmarks/NOTES.md has the measured gain.
_CORPUS_START_STD: Final = 0.05


def build_model(
    model: str | Path, plan: PretrainingPlan, shape: ModelShape
) -> tuple[PretrainingModel, BertConfig]:
    """The model with its heads, and the configuration that is saved with it.

    Raises as ``new_config``, and UsageError for a MODEL of another vocabulary or casing.
    """
    if isinstance(plan.instances, NextTokenOptions):
        return _language_model(str(model), plan, plan.instances)
    build = build_pretraining_model(plan.instances.objective)
    vocabulary = plan.corpus.manifest.vocabulary
    rate = plan.arguments.setting("dropout")
    if is_new(model):
        config = new_config(model, shape, int(vocabulary["vocab_size"]))
        network = build(_with_dropout(config, rate))
        plan.note(f"{model}: random weights, {config.num_parameters / 1e6:.1f} M parameters")
        return network, config
    refuse_shape(model, shape)
    directory = ModelDirectory.open(model)
    directory.require_bert()
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
    plan.note(report.summary())
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
    plan.note(f"{size}: random weights, {config.num_parameters / 1e6:.1f} M parameters")
    return network, config


def start_from_corpus(network: PretrainingModel, plan: PretrainingPlan) -> None:
    """Overwrite what the corpus already shows: like words, their frequencies, and neighbours.

    The network must be on the CPU.
    """
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
    plan.note(
        f"start from the corpus: {int(seen.sum()):,} words' embeddings from their neighbours in "
        f"{found.num_tokens:,} tokens, and heads that look at neighbours; "
        f"{param('initial_weights', 'random')} leaves that out"
    )


def _with_dropout(config: BertConfig, rate: float) -> BertConfig:
    return replace(config, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)
