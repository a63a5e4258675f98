"""BERT's relatives as transformers writes them: tiny random models, and tokenizers."""

from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.conftest import ANIMALS, COLOURS, FILLERS, TINY_VOCABULARY
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

_SIZES: Final = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
}
_ROBERTA: Final = {**_SIZES, "max_position_embeddings": 34, "type_vocab_size": 1}
#: By model_type: what transformers' classes begin with, the sizes of a model that runs in a
#: millisecond, and the kind of its tokenizer.
RELATIVES: Final[dict[str, tuple[str, dict[str, Any], str]]] = {
    "roberta": ("Roberta", _ROBERTA, "bytes"),
    "camembert": ("Camembert", _ROBERTA, "unigram"),
    "xlm-roberta": ("XLMRoberta", _ROBERTA, "unigram"),
    "distilbert": (
        "DistilBert",
        {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 32},
        "wordpiece",
    ),
    "electra": ("Electra", {**_SIZES, "embedding_size": 8}, "wordpiece"),
    "modernbert": (
        "ModernBert",
        {**_SIZES, "num_hidden_layers": 4, "local_attention": 8, "pad_token_id": 0},
        "bpe",
    ),
}
ROBERTAS: Final = ("roberta", "camembert", "xlm-roberta")
HEADS: Final = (
    "Model",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
    "ForMaskedLM",
)
LABELS: Final = 3


def configured(kind: str, head: str = "Model", **more: Any) -> Any:
    """transformers' configuration of a tiny model."""
    import transformers

    prefix, sizes, tokens = RELATIVES[kind]
    given = {
        "vocab_size": tokenizer_of(tokens).get_vocab_size(),
        "initializer_range": 0.1,
        "attn_implementation": "eager",
        **sizes,
        "num_labels": LABELS if "Classification" in head else 2,
        **more,
    }
    return getattr(transformers, f"{prefix}Config")(**given)


def reference(kind: str, head: str = "Model", **more: Any) -> Any:
    """transformers' model with every parameter random, in evaluation mode."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = configured(kind, head, **more)
    # Its own pooler is no part of a head, and no other relative has one.
    named = {"add_pooling_layer": False} if head == "Model" and kind in ROBERTAS else {}
    model = getattr(transformers, f"{RELATIVES[kind][0]}{head}")(config, **named).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Fresh biases and LayerNorms are 0 and 1, which would hide a mistake in them.
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def saved(folder: Path, kind: str, head: str = "Model", **more: Any) -> Any:
    """Save a model and its tokenizer as transformers does; returns the model."""
    model = reference(kind, head, **more)
    model.save_pretrained(folder)
    save_tokenizer(folder, kind)
    return model


def save_tokenizer(folder: Path, kind: str) -> None:
    from tidybert.tokenization import BertTokenizer

    tokens = RELATIVES[kind][2]
    if tokens == "wordpiece":
        BertTokenizer(TINY_VOCABULARY).save(folder)
        return
    tokenizer_of(tokens).save(str(folder / "tokenizer.json"))


@cache
def tokenizer_of(tokens: str) -> Tokenizer:
    """A tokenizer of a kind, learnt from the toy problem's words."""
    if tokens == "wordpiece":
        return Tokenizer(models.WordPiece({each: at for at, each in enumerate(TINY_VOCABULARY)}))
    words = (*COLOURS, *ANIMALS, *FILLERS)
    lines = [f"{a} {b} {c}" for a in words for b in words for c in words[:3]]
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    if tokens == "unigram":
        found = Tokenizer(models.Unigram())
        found.pre_tokenizer = pre_tokenizers.Metaspace()
        found.decoder = decoders.Metaspace()
        trainer: Any = trainers.UnigramTrainer(
            vocab_size=60, special_tokens=special, unk_token="<unk>"
        )
    else:
        if tokens == "bpe":
            special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
        found = Tokenizer(models.BPE(unk_token=special[3]))
        found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        found.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=330,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
    found.train_from_iterator(lines, trainer)
    begin, end = (special[1], special[2]) if tokens == "bpe" else (special[0], special[2])
    ids = [(each, found.token_to_id(each)) for each in (begin, end)]
    if tokens == "bytes":
        found.post_processor = processors.RobertaProcessing(ids[1], ids[0])
    else:
        pair = (
            f"{begin} $A {end} $B {end}" if tokens == "bpe" else f"{begin} $A {end} {end} $B {end}"
        )
        found.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A {end}", pair=pair, special_tokens=ids
        )
    return found
