"""The keys of a config.json: which of them say what the encoder computes.

They are those of Google's bert_config.json (google-research/bert, modeling.py, BertConfig) and of
Hugging Face's config.json.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tidybert.errors import ConfigError, suggestion

SHAPE_KEYS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
)
"""The sizes that a file must have."""

MAX_SIZE = 2**31 - 1

_PROBLEM_TYPES = (None, "regression", "single_label_classification", "multi_label_classification")
# Keys that would change the computation, each with the only values that this encoder computes.
_REQUIRED_VALUES: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (None,),
    "pruned_heads": (None, {}),
    "quantization_config": (None,),
    "auto_map": (None, {}),
    "directionality": ("bidi",),
    "pooler_type": ("first_token_transform",),
    "problem_type": _PROBLEM_TYPES,
}

# Published encoders that people take for a BERT, by their model_type: their name.
_RELATIVES: dict[str, str] = {
    "albert": "ALBERT",
    "big_bird": "BigBird",
    "camembert": "CamemBERT",
    "convbert": "ConvBERT",
    "deberta": "DeBERTa",
    "deberta-v2": "DeBERTa v2 or v3",
    "distilbert": "DistilBERT",
    "electra": "ELECTRA",
    "ernie": "ERNIE",
    "eurobert": "EuroBERT",
    "longformer": "Longformer",
    "mobilebert": "MobileBERT",
    "modernbert": "ModernBERT",
    "mpnet": "MPNet",
    "new": "GTE",
    "nomic_bert": "Nomic BERT",
    "roberta": "RoBERTa",
    "roformer": "RoFormer",
    "squeezebert": "SqueezeBERT",
    "xlm-roberta": "XLM-RoBERTa",
    "xlnet": "XLNet",
}

# Keys that do not change the encoder's numbers: they describe the head, the program that wrote the
# file, or how to run; the last lines are what old versions of transformers wrote for generation.
_IGNORED_KEY_LIST = """
    architectures id2label label2id num_labels _num_labels finetuning_task task_specific_params
    tie_word_embeddings tie_encoder_decoder tie_last_hidden_states
    _name_or_path name_or_path transformers_version _commit_hash
    torch_dtype dtype use_bfloat16 torchscript xla_device tf_legacy_loss
    use_cache gradient_checkpointing chunk_size_feed_forward _attn_implementation
    _attn_implementation_autoset attn_implementation _experts_implementation
    output_attentions output_hidden_states output_past return_dict use_return_dict
    tokenizer_class prefix
    pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head
    bos_token_id eos_token_id sep_token_id decoder_start_token_id forced_bos_token_id
    forced_eos_token_id bad_words_ids begin_suppress_tokens suppress_tokens do_sample
    diversity_penalty early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty
    length_penalty max_length min_length no_repeat_ngram_size num_beam_groups num_beams
    num_return_sequences output_scores remove_invalid_values repetition_penalty
    return_dict_in_generate temperature top_k top_p typical_p
"""
_IGNORED_KEYS = frozenset(_IGNORED_KEY_LIST.split())


def encoder_values(
    values: Mapping[str, Any], names: Sequence[str], model_types: tuple[str, ...]
) -> dict[str, Any]:
    """The fields among ``values`` that ``names`` has, after a check of every other key.

    Raises ConfigError for an unknown key, a missing size, and a value of a known key that would
    change the computation.
    """
    _check_kind(values.get("model_type", model_types[0]), model_types)
    known = (*names, "model_type", *_REQUIRED_VALUES, *_IGNORED_KEYS)
    for key, value in values.items():
        if key not in known:
            raise ConfigError(
                f"unknown key {key!r}{suggestion(key, known)}; remove it if the encoder does not "
                f"depend on it"
            )
        allowed = _REQUIRED_VALUES.get(key)
        if allowed is not None and value not in allowed:
            raise ConfigError(
                f"{key} is {value!r:.80}; only {' or '.join(map(repr, allowed))} can be read"
            )
    missing = [key for key in SHAPE_KEYS if key not in values]
    if missing:
        raise ConfigError(f"missing key {', '.join(map(repr, missing))}")
    chosen = {key: values[key] for key in names if key in values}
    # A null pad_token_id means that no row of the table is special, which always holds here.
    if "pad_token_id" in chosen and chosen["pad_token_id"] is None:
        del chosen["pad_token_id"]
    return chosen


def _check_kind(model_type: Any, known: tuple[str, ...]) -> None:
    """Raise ConfigError, which says what the checkpoint is, unless it is one of ours."""
    if isinstance(model_type, str) and model_type in known:
        return
    relative = _RELATIVES.get(model_type) if isinstance(model_type, str) else None
    kind = f": the checkpoint is {relative}, which computes something else than BERT" * bool(
        relative
    )
    raise ConfigError(
        f"model_type is {model_type!r:.80}{kind}; tidybert reads only "
        f"{' or '.join(map(repr, known))}: open it with transformers, or with "
        "sentence-transformers if it embeds texts"
    )


def check_int(key: str, value: Any, *, at_least: int) -> None:
    """Raise ConfigError unless the value is a whole number of a plausible size."""
    # To Python, a bool is an int.
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{key} is {value!r:.40}; a whole number is needed")
    if value > MAX_SIZE:
        raise ConfigError(f"{key} is above {MAX_SIZE}, more than any model has")
    if value < at_least:
        raise ConfigError(f"{key} is {value}; it must be at least {at_least}")


def number(key: str, value: Any) -> float:
    """The value as a float; raises ConfigError for what is no number."""
    # Check the bound before converting: an int of hundreds of digits has no float.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_SIZE:
        raise ConfigError(f"{key} is {value!r:.40}; a number is needed")
    return float(value)


def check_probability(key: str, value: Any) -> None:
    """Raise ConfigError unless the value is in [0, 1)."""
    if not 0.0 <= number(key, value) < 1.0:
        raise ConfigError(f"{key} is {value}; a probability must be at least 0 and below 1")
