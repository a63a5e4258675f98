"""Fifty config.json with the keys of published BERTs: transformers' outputs, or what differs.

The keys are those that programs wrote over the years; the sizes and weights are tiny ones.
"""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.errors import ConfigError
from tidybert.modeling import BertModel, Rows
from tidybert.modeling.heads import ARCHITECTURES

SIZES = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
}
IDS = [2, 7, 8, 9, 3, 11, 12, 3]
TYPES = [0, 0, 0, 0, 0, 1, 1, 1]

BASE, MLM, PRE = "BertModel", "BertForMaskedLM", "BertForPreTraining"
CLASSES, TAGS = "BertForSequenceClassification", "BertForTokenClassification"
SPANS, NEXT = "BertForQuestionAnswering", "BertForNextSentencePrediction"
POOLER: dict[str, Any] = {
    "directionality": "bidi",
    "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12,
    "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform",
}
DEFAULTS: dict[str, Any] = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "model_type": "bert",
    "pad_token_id": 0,
}
# As transformers 2 wrote every default of generation.
GENERATION: dict[str, Any] = {
    "bad_words_ids": None, "bos_token_id": None, "decoder_start_token_id": None,
    "do_sample": False, "early_stopping": False, "eos_token_id": None, "eos_token_ids": 0,
    "length_penalty": 1.0, "max_length": 20, "min_length": 0, "no_repeat_ngram_size": 0,
    "num_beams": 1, "num_return_sequences": 1, "repetition_penalty": 1.0, "temperature": 1.0,
    "top_k": 50, "top_p": 1.0,
}  # fmt: skip
TWO: dict[str, Any] = {
    "id2label": {"0": "neg", "1": "pos"}, "label2id": {"neg": 0, "pos": 1},
}  # fmt: skip
THREE: dict[str, Any] = {
    "id2label": {"0": "O", "1": "B-PER", "2": "I-PER"},
    "label2id": {"B-PER": 1, "I-PER": 2, "O": 0},
}

# (the class of the weights, keys beside the sizes): all give what transformers gives.
CONFIGS: list[tuple[str, dict[str, Any]]] = [
    # Encoders and pre-training.
    (PRE, {}),
    (PRE, {"architectures": [PRE], **DEFAULTS}),
    (MLM, {"architectures": [MLM], **DEFAULTS, "gradient_checkpointing": False}),
    (MLM, {**DEFAULTS, "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0",
           "use_cache": True}),
    (MLM, {**DEFAULTS, **POOLER}),
    (BASE, {**DEFAULTS, **POOLER, "output_past": True}),
    (BASE, {**DEFAULTS, "torch_dtype": "float32", "transformers_version": "4.30.2"}),
    (BASE, {**DEFAULTS, "dtype": "float32", "transformers_version": "5.0.0"}),
    (BASE, {**DEFAULTS, "_name_or_path": "bert-base-uncased", "classifier_dropout": None}),
    (BASE, {**DEFAULTS, "name_or_path": "old/path", "model_max_length": 512}),
    (BASE, {**DEFAULTS, "is_decoder": False, "add_cross_attention": False,
            "cross_attention_hidden_size": None}),
    (BASE, {**DEFAULTS, "pruned_heads": {}, "chunk_size_feed_forward": 0}),
    (BASE, {**DEFAULTS, "tie_word_embeddings": True, "is_encoder_decoder": False}),
    (BASE, {**DEFAULTS, "torchscript": False, "output_attentions": False,
            "output_hidden_states": False, "return_dict": True}),
    (BASE, {**DEFAULTS, "bos_token_id": None, "eos_token_id": None, "use_bfloat16": False}),
    (BASE, {**DEFAULTS, "attn_implementation": "sdpa", "_attn_implementation_autoset": True}),
    (BASE, {**DEFAULTS, "tokenizer_class": "BertTokenizerFast", "prefix": None}),
    (BASE, {**DEFAULTS, "xla_device": None}),
    (BASE, {**DEFAULTS, "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}),
    (BASE, {**DEFAULTS, "layer_norm_eps": 1e-05}),
    (BASE, {**DEFAULTS, "hidden_act": "gelu_new"}),
    (BASE, {**DEFAULTS, "hidden_act": "relu"}),
    (BASE, {**DEFAULTS, "hidden_act": "gelu_pytorch_tanh"}),
    (MLM, {**DEFAULTS, "tie_encoder_decoder": False, "tf_legacy_loss": False}),
    # Without what Google's first files lacked.
    (BASE, {"hidden_act": "gelu", "initializer_range": 0.02, "hidden_dropout_prob": 0.1}),
    (BASE, {**DEFAULTS, "pad_token_id": None}),
    (BASE, {**DEFAULTS, "embedding_size": 16}),
    # A domain's and a trainer's own words.
    (BASE, {**DEFAULTS, "domain": "biomedical", "training_steps": 1000000}),
    (BASE, {**DEFAULTS, "language": "german", "name": "Bert"}),
    (BASE, {**DEFAULTS, "adapters": {}, "custom_pipelines": {}}),
    (BASE, {**DEFAULTS, "_commit_hash": "abc", "summary_type": "first", "n_gpu": 8}),
    # Classes.
    (CLASSES, {**DEFAULTS, **TWO, "finetuning_task": "sst-2"}),
    (CLASSES, {**DEFAULTS, **TWO, "problem_type": "single_label_classification"}),
    (CLASSES, {**DEFAULTS, **THREE, "problem_type": "multi_label_classification"}),
    (CLASSES, {**DEFAULTS, "num_labels": 3}),
    (CLASSES, {**DEFAULTS, "_num_labels": 2, **TWO, **GENERATION}),
    (CLASSES, {**DEFAULTS, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0},
               "problem_type": "regression"}),
    (CLASSES, {**DEFAULTS, **TWO, "label2id": {"neg": "0", "pos": "1"}}),
    (CLASSES, {**DEFAULTS, **TWO, "classifier_dropout": 0.2, "gradient_checkpointing": True}),
    (CLASSES, {**DEFAULTS, **POOLER, **TWO, "task_specific_params": {"a": {"b": 1}}}),
    (CLASSES, {**DEFAULTS, "num_labels": 1,
               "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}),
    (CLASSES, {**DEFAULTS, "num_labels": 1, "sentence_transformers": {"version": "4.1.0"}}),
    # Tags, answers, next sentences.
    (TAGS, {**DEFAULTS, **THREE, "_num_labels": 3, "output_past": True}),
    (TAGS, {**DEFAULTS, **THREE, **POOLER, "max_seq_length": 128}),
    (TAGS, {**DEFAULTS, **THREE, "ner_labels": ["O"], "crf": False}),
    (SPANS, {**DEFAULTS, "language": "english", "name": "Bert", "max_seq_length": 384,
             "doc_stride": 128}),
    (SPANS, {**DEFAULTS, **POOLER, "finetuning_task": None, "num_labels": 2, "torchscript": False}),
    (SPANS, {**DEFAULTS, **GENERATION, "output_past": True, "pruned_heads": {}}),
    (NEXT, {**DEFAULTS, "output_attentions": True, "output_hidden_states": True}),
    (NEXT, {**DEFAULTS, "attention_type": "original_full", "use_cache": True}),
]  # fmt: skip

# What the encoder would compute otherwise, and what the error says.
OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"position_embedding_type": "relative_key_query"}, "position_embedding_type is"),
    ({"is_decoder": True}, "is_decoder is True"),
    ({"hidden_act": "silu"}, "hidden_act is silu"),
    ({"pooler_type": "attention"}, "pooler_type is 'attention'"),
    ({"directionality": "left"}, "directionality is 'left'"),
    ({"pruned_heads": {"0": [1]}}, "pruned_heads is"),
    ({"quantization_config": {"bits": 8}}, "quantization_config is"),
    ({"model_type": "albert"}, "the checkpoint is ALBERT"),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """Makes the directory of a class's random weights, once for each number of labels."""
    made: dict[tuple[str, int], Path] = {}

    def make(architecture: str, num_labels: int) -> Path:
        if (architecture, num_labels) not in made:
            torch.manual_seed(1)
            config = transformers.BertConfig(
                **SIZES, num_labels=num_labels, initializer_range=0.3, attn_implementation="eager"
            )
            folder = tmp_path_factory.mktemp(architecture)
            getattr(transformers, architecture)(config).save_pretrained(folder)
            made[architecture, num_labels] = folder
        return made[architecture, num_labels]

    return make


def first_tensor(found: Any) -> torch.Tensor:
    """The logits, or the states, of either program."""
    names = ("prediction_logits", "logits", "start_logits", "last_hidden_state")
    tensors = [getattr(found, name) for name in names if getattr(found, name, None) is not None]
    tensor: torch.Tensor = tensors[0] if tensors else found
    return tensor.reshape(-1, tensor.shape[-1])


def test_there_are_fifty() -> None:
    assert len(CONFIGS) == 50


@pytest.mark.parametrize("number", range(len(CONFIGS)))
def test_a_published_config_gives_what_transformers_gives(
    saved: Callable[[str, int], Path], number: int
) -> None:
    architecture, keys = CONFIGS[number]
    num_labels = keys.get("num_labels", len(keys.get("id2label", "01")))
    folder = saved(architecture, num_labels)
    (folder / "config.json").write_text(json.dumps({**SIZES, **keys}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = getattr(transformers, architecture).from_pretrained(folder).eval()

    directory = ModelDirectory(folder)
    head = ARCHITECTURES.get(architecture)
    ours, report = directory.build(
        lambda config: head.built(config, num_labels) if head else BertModel(config)
    )

    assert report.new == ()
    rows = Rows.from_lists([IDS], [TYPES])
    with torch.no_grad():
        found = first_tensor(ours.eval()(rows))
        given = {"input_ids": torch.tensor([IDS]), "token_type_ids": torch.tensor([TYPES])}
        expected = first_tensor(theirs(**given, return_dict=True))
    found = found[:, :1].T if architecture == SPANS else found
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
    named = directory.head.label_names
    assert list(named or ["LABEL_0", "LABEL_1"]) == [*theirs.config.id2label.values()]


@pytest.mark.parametrize(("keys", "said"), OTHERS)
def test_what_computes_something_else_is_named(
    saved: Callable[[str, int], Path], keys: dict[str, Any], said: str
) -> None:
    folder = saved(BASE, 2)
    (folder / "config.json").write_text(json.dumps({**SIZES, **DEFAULTS, **keys}))

    with pytest.raises(ConfigError, match=said):
        ModelDirectory(folder).build(BertModel)
