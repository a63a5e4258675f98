"""The views of pre-trained heads: Next sentence, How it is trained, and Left to right."""

from dataclasses import asdict
from typing import Any, Final

import numpy as np
import torch
from torch.nn import functional

from tidybert.data.batching import collate
from tidybert.data.features import Features
from tidybert.errors import DataError
from tidybert.inference.generation import Sampling
from tidybert.page.page_model import PageModel, checked_place, checked_text, shown_tokens
from tidybert.pretraining.batches.instance_options import MaskingOptions
from tidybert.pretraining.batches.masking import Masking
from tidybert.pretraining.batches.random_streams import Purpose, random_bits
from tidybert.tokenization.vocabulary import MASK_TOKEN

_MOST_SEEDS: Final = 2**31 - 1
_MOST_STEPS: Final = 64
_POSITIONS: Final = 64


def next_sentence(model: PageModel, text: str, pair: str) -> dict[str, Any]:
    """Whether ``pair`` follows ``text``, and the pieces that the model reads."""
    if not pair:
        raise DataError("segment B is empty: write a sentence")
    encoding = model.encode(text, pair)
    (answer,) = model.next_sentences.predict([text], [pair])
    python = f"""from tidybert import NextSentencePredictor

predictor = NextSentencePredictor({model.written!r})
print(predictor.predict([{text!r}], [{pair!r}]))
"""
    return {"tokens": shown_tokens(encoding), "follows": answer["follows"], "python": python}


def training(
    model: PageModel, text: str, pair: str = "", seed: int = 1, follows: bool = True
) -> dict[str, Any]:
    """One instance of pre-training: what is masked, the loss of each hidden piece, and their mean.

    With a pair also the loss of the next-sentence head, and the sum of both.  ``follows`` is the
    truth about the pair.
    """
    encoding = model.encode(text, pair)
    checked_place("seed", seed, 0, _MOST_SEEDS)
    ids = np.array(encoding.input_ids, dtype=np.int32)
    key = random_bits(seed, 0, Purpose.MASK_KEY, np.array([0]))
    masking = Masking(MaskingOptions(), model.tokenizer)
    masked = masking.mask(ids, np.array([len(ids)]), key)
    types = np.array(encoding.token_type_ids, dtype=np.uint8)
    rows = collate([Features(masked.input_ids, types, len(ids), False, example=0)]).rows
    with torch.inference_mode():
        found = model.pretraining(rows, masked_lm_positions=torch.from_numpy(masked.positions))
        labels = torch.from_numpy(masked.labels.astype(np.int64))
        losses = functional.cross_entropy(found.prediction_logits, labels, reduction="none")
        truth = torch.tensor([0 if follows else 1])
        pair_loss = float(functional.cross_entropy(found.seq_relationship_logits, truth))
        chances = functional.softmax(found.seq_relationship_logits, -1)[0]
        likeliest = found.prediction_logits.argmax(1).tolist()
    mean = float(losses.mean())
    pieces = model.tokenizer.convert_ids_to_tokens
    columns = {
        "position": masked.positions.tolist(),
        "truth": pieces(masked.labels.tolist()),
        "became": pieces(masked.input_ids[masked.positions].tolist()),
        "likeliest": pieces(likeliest),
        "loss": losses.tolist(),
    }
    hidden = [dict(zip(columns, each, strict=True)) for each in zip(*columns.values(), strict=True)]
    for each in hidden:
        each["what"] = _what_happened(each["truth"], each["became"])
    shown: dict[str, Any] = {
        "tokens": shown_tokens(encoding),
        "read": pieces(masked.input_ids.tolist()),
        "hidden": hidden,
        "share": MaskingOptions().predicted_share,
        "mean": mean,
        "pair": None,
        "python": _training_code(model.written, text, pair, seed, follows),
    }
    if pair:
        shown["pair"] = {
            "follows": follows,
            "probability": float(chances[truth[0]]),
            "loss": pair_loss,
            "sum": mean + pair_loss,
        }
    return shown


def _what_happened(piece: str, became: str) -> str:
    if piece == became:
        return "kept"
    return "masked" if became == MASK_TOKEN else "replaced"


def _training_code(written: str, text: str, pair: str, seed: int, follows: bool) -> str:
    add_pair = f", {pair!r}" if pair else ""
    last = (
        f"""truth = torch.tensor([{int(not follows)}])
pair = functional.cross_entropy(found.seq_relationship_logits, truth)
print(loss.item(), pair.item(), (loss + pair).item())
"""
        if pair
        else "print(loss.item())\n"
    )
    return f"""import numpy as np
import torch
from torch.nn import functional
from tidybert import BertForPreTraining, BertTokenizer
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.modeling.rows import Rows
from tidybert.pretraining.batches.instance_options import MaskingOptions
from tidybert.pretraining.batches.masking import Masking
from tidybert.pretraining.batches.random_streams import Purpose, random_bits

tokenizer = BertTokenizer.from_pretrained({written!r})
encoding = tokenizer.encode({text!r}{add_pair}, special_tokens_in_text=True)
size = len(encoding)
key = random_bits({seed}, 0, Purpose.MASK_KEY, np.array([0]))
masking = Masking(MaskingOptions(), tokenizer)
masked = masking.mask(np.array(encoding.input_ids, np.int32), np.array([size]), key)
print(tokenizer.convert_ids_to_tokens(masked.input_ids.tolist()))

model, _ = ModelDirectory.open({written!r}).build(BertForPreTraining)
rows = Rows.from_lists([masked.input_ids.tolist()], [encoding.token_type_ids])
found = model.eval()(rows, masked_lm_positions=torch.from_numpy(masked.positions))
labels = torch.from_numpy(masked.labels.astype(np.int64))
loss = functional.cross_entropy(found.prediction_logits, labels)
{last}"""


def left_to_right(
    model: PageModel, text: str, temperature: float | None = None, seed: int = 1
) -> dict[str, Any]:
    """Each next token with the ten likeliest ones, up to [EOS] or 64 of them.

    ``temperature`` draws the tokens; without it each is the likeliest.
    """
    checked_text(text)
    sampling = Sampling(temperature, seed=seed)
    steps = list(model.generator.steps(text, max_tokens=_MOST_STEPS, sampling=sampling))
    drawn = "" if temperature is None else f", temperature={temperature}, seed={seed}"
    python = f"""from tidybert import TextGenerator
from tidybert.inference.generation import Sampling

generator = TextGenerator({model.written!r})
sampling = Sampling({drawn.removeprefix(", ")})
for step in generator.steps({text!r}, max_tokens={_MOST_STEPS}, sampling=sampling):
    print(step.prompt, "|", step.token, round(step.probability, 3))
"""
    return {
        "steps": [asdict(one) for one in steps],
        "ended": bool(steps) and steps[-1].is_end,
        "python": python,
    }


def positions(model: PageModel) -> dict[str, Any]:
    """What the model adds to a token at each of its first positions: (P, H), to two decimals."""
    generator = model.generator
    table = generator.model.bert.embeddings.position_embeddings.weight.detach()
    config = generator.model.config
    return {
        "kind": getattr(config, "positions", "learned"),
        "values": table[:_POSITIONS].numpy().round(2).tolist(),
    }
