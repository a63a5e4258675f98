"""Random models as transformers saves them, over each kind of tokenizer, and texts to ask them.

The tokenizers learn from words and characters of many scripts, so that texts have pieces of all
lengths: bytes, a space's mark before a word, unknown characters.
"""

import io
import json
import random
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

_WORDS: Final = (
    "the cat dog running quickly over lazy brown can't it's don't hello naïve café Straße München "
    "résumé 你好 世界 年 ひらがな カタカナ 한국어 नमस्ते ไทย العربية עברית привет мир Ωμέγα İstanbul "
    "ﬁne ① ½ ｆｕｌｌ 123 4567 3.14 e-mail user@example.com (C-3PO) £5.00 “Zoë” U.S.A. #tag "
    "😀 👨‍👩‍👧 🇩🇪"
)
WORDS: Final = _WORDS.split()
SIGNS: Final = [*"abcdeABCDE.,!?'\"-_#@()<>/0123456789", *"éüßıñﾞ…–’▁Ġ\u00ad\u0301", "\u200b", "  "]
ROBERTA: Final = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
BERT: Final = ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")
LENGTH: Final = 96
"""The tokens that each model reads."""
NAMES: Final = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
CLASSES: Final = ("red", "green", "blue")


def text_of(rng: random.Random, num_words: int, *, marks: bool = True) -> str:
    """Words and signs, mostly with a space after them; without ``marks``, composed ones alone."""
    text = ""
    for _ in range(num_words):
        text += rng.choice(SIGNS) * rng.choice((1, 1, 2)) if rng.random() < 0.25 else ""
        text += rng.choice(WORDS) + rng.choice((" ", " ", " ", "", ", ", "\n"))
    if not marks:
        text = unicodedata.normalize("NFC", text)
        text = "".join(each for each in text if unicodedata.category(each) != "Mn")
    return text


@cache
def corpus() -> list[str]:
    rng = random.Random(0)
    return [text_of(rng, 10) for _ in range(600)]


def _template(tokenizer: Tokenizer, special: Sequence[str], double: bool, second: int) -> Any:
    begin, _, end = special[:3]
    middle = f"{end} {end}" if double else end
    return processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {middle} $B:{second} {end}:{second}",
        special_tokens=[(each, tokenizer.token_to_id(each)) for each in (begin, end)],
    )


def _wordpiece(lowercase: bool) -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=600, special_tokens=[*BERT], show_progress=False)
    made.train_from_iterator(corpus(), trainer)
    made.post_processor = _template(made, BERT, False, 1)
    return made


def _bytes(special: Sequence[str], prefix: bool, template: bool) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=450,
        special_tokens=[*special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(corpus(), trainer)
    begin, end = ((each, made.token_to_id(each)) for each in (special[0], special[2]))
    made.post_processor = (
        _template(made, special, False, 0)
        if template
        else processors.RobertaProcessing(end, begin, trim_offsets=True, add_prefix_space=prefix)
    )
    return made


@cache
def _charsmap() -> bytes:
    """SentencePiece's own rules of normalisation, as its models hold them."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()),
        model_writer=made,
        vocab_size=300,
        hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
    )
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(made.getvalue())
    found: bytes = proto.normalizer_spec.precompiled_charsmap
    return found


def _unigram(scheme: str, splits: bool) -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence(
        [normalizers.Precompiled(_charsmap()), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    steps: list[Any] = [pre_tokenizers.WhitespaceSplit()] if splits else []
    steps.append(pre_tokenizers.Metaspace(prepend_scheme=scheme))
    made.pre_tokenizer = pre_tokenizers.Sequence(steps)
    made.decoder = decoders.Metaspace(prepend_scheme=scheme)
    trainer = trainers.UnigramTrainer(
        vocab_size=450, special_tokens=[*ROBERTA], unk_token="<unk>", show_progress=False
    )
    made.train_from_iterator(corpus(), trainer)
    made.post_processor = _template(made, ROBERTA, True, 0)
    return made


@dataclass(frozen=True)
class Kind:
    """A kind of tokenizer, and the architecture that is often found with it.

    Args:
        special: for beginnings, padding, ends, unknown pieces, masks.
        config: further entries of tokenizer_config.json.
        spaced: whether transformers' recipes ask for a space before each word of a list.
    """

    prefix: str
    special: tuple[str, ...]
    made: Any
    tokenizer_class: str = "PreTrainedTokenizerFast"
    config: dict[str, Any] = field(default_factory=dict)
    spaced: bool = False


KINDS: Final = {
    "wordpiece": Kind(
        "Bert", BERT, lambda: _wordpiece(True), "BertTokenizer", {"do_lower_case": True}
    ),
    "wordpiece-cased": Kind(
        "DistilBert", BERT, lambda: _wordpiece(False), "BertTokenizer", {"do_lower_case": False}
    ),
    "vocab.txt": Kind(
        "Electra", BERT, lambda: _wordpiece(True), "BertTokenizer", {"do_lower_case": True}
    ),
    "bytes": Kind(
        "Roberta", ROBERTA, lambda: _bytes(ROBERTA, False, False), "RobertaTokenizer", spaced=True
    ),
    "bytes-prefix": Kind(
        "Roberta", ROBERTA, lambda: _bytes(ROBERTA, True, False), "RobertaTokenizer",
        {"add_prefix_space": True}, spaced=True,
    ),
    "bytes-template": Kind("ModernBert", BERT, lambda: _bytes(BERT, False, True), spaced=True),
    "unigram": Kind("XLMRoberta", ROBERTA, lambda: _unigram("always", True)),
    "unigram-first": Kind("Camembert", ROBERTA, lambda: _unigram("first", False)),
}  # fmt: skip


@cache
def tokenizer_of(name: str) -> Tokenizer:
    made: Tokenizer = KINDS[name].made()
    return made


def save_model(folder: Path, name: str, head: str, seed: int, **more: Any) -> Any:
    """Save a random model and its tokenizer; returns the model, in evaluation mode."""
    kind, made = KINDS[name], tokenizer_of(name)
    pad = made.token_to_id(kind.special[1])
    sizes: dict[str, Any] = {
        "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 24, "max_position_embeddings": LENGTH,
    }  # fmt: skip
    if kind.prefix == "DistilBert":
        sizes = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
        sizes["max_position_embeddings"] = LENGTH
    elif kind.prefix == "Electra":
        sizes["embedding_size"] = 8
    elif kind.prefix == "ModernBert":
        sizes["local_attention"] = 8
    elif kind.special is ROBERTA:
        sizes |= {"max_position_embeddings": LENGTH + pad + 1, "type_vocab_size": 1}
    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind.prefix}Config")(
        vocab_size=made.get_vocab_size(),
        pad_token_id=pad,
        initializer_range=0.3,
        attn_implementation="eager",
        **sizes,
        **more,
    )
    model = getattr(transformers, f"{kind.prefix}{head}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Fresh biases and norms are 0 and 1, which would hide a mistake in them.
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    _save_tokenizer(folder, name)
    return model


def _save_tokenizer(folder: Path, name: str) -> None:
    kind, made = KINDS[name], tokenizer_of(name)
    roles = dict(zip(("cls", "pad", "sep", "unk", "mask"), kind.special, strict=True))
    if kind.special is ROBERTA:
        roles |= {"bos": "<s>", "eos": "</s>"}
    reads = {}
    if kind.prefix in ("DistilBert", "ModernBert"):
        reads["model_input_names"] = ["input_ids", "attention_mask"]
    config = {
        "tokenizer_class": kind.tokenizer_class,
        "model_max_length": LENGTH,
        **{f"{role}_token": token for role, token in roles.items()},
        **kind.config,
        **reads,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if name == "vocab.txt":
        ids = made.get_vocab()
        (folder / name).write_text(
            "".join(f"{each}\n" for each in sorted(ids, key=ids.__getitem__))
        )
    else:
        made.save(str(folder / "tokenizer.json"))
