"""The views by the names that the browser asks for."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.nn import functional

from tidybert.catalog import find_model
from tidybert.data.batching import collate
from tidybert.data.features import Features
from tidybert.errors import DataError, TidyBertError
from tidybert.explain.explained_text import words_of
from tidybert.files.rows import count_of
from tidybert.inference.forward import run_features
from tidybert.inference.language_model import Sampling
from tidybert.inference.pretraining_heads import MaskFiller
from tidybert.page.page_model import (
    MOST_CHARACTERS,
    MOST_PIECES,
    PageModel,
    View,
    checked_place,
    checked_text,
    shown_tokens,
    written_texts,
)
from tidybert.pretraining.batches.instance_options import MaskingOptions
from tidybert.pretraining.batches.masking import Masking
from tidybert.pretraining.batches.random_streams import Purpose, random_bits
from tidybert.reporting.pretraining_curves import run_picture
from tidybert.storage.model_files import (
    ARGUMENTS_FILE,
    CHECKPOINTS_FOLDER,
    METRICS_FILE,
    checkpoints_by_step,
)
from tidybert.tasks.answer import LabelledAnswer, Scored, TaskAnswer
from tidybert.tasks.questions.question_features import ContextWindow
from tidybert.tasks.questions.question_files import QuestionExample
from tidybert.tasks.task import AnyTask
from tidybert.training.runs.provenance import recorded_files

# The views Tokens, Masked word and Words: tokens with embeddings, masked words, words on a map.

_LIKELIEST: Final = 10
_MOST_WORDS: Final = 40


def tokens(model: PageModel, text: str, pair: str = "") -> dict[str, Any]:
    encoding = model.encode(text, pair)
    python = f"""from tidybert import BertTokenizer, Explainer

tokenizer = BertTokenizer.from_pretrained({model.written!r})
encoding = tokenizer.encode({written_texts(text, pair)}, special_tokens_in_text=True)
print(encoding.tokens, encoding.input_ids, encoding.token_type_ids, encoding.offset_mapping)
print(Explainer({model.written!r}).embeddings({written_texts(text, pair)}))
"""
    return {"tokens": shown_tokens(encoding), "python": python}


def embedding(model: PageModel, text: str, position: int, pair: str = "") -> dict[str, Any]:
    """The three embeddings of one piece, their sum, and the sum after LayerNorm: (H,) each."""
    most = len(model.encode(text, pair)) - 1
    at = checked_place("position", position, 0, most)
    parts = model.explainer.embeddings(text, pair or None).parts
    return {"parts": [{"name": name, "values": values[at]} for name, values in parts.items()]}


def words(model: PageModel, text: str) -> dict[str, Any]:
    return {"words": [each.text for each in words_of(model.encode(text), (text, ""))]}


def gap(model: PageModel, text: str, word: int) -> dict[str, Any]:
    """The pieces that each layer would write in place of a word, and how attention changes.

    ``change`` has (L, n) mean differences over the heads, with the word hidden minus with it shown:
    of what its first piece looks at ("from"), and of how much each piece looks at it ("to").
    """
    encoding = model.encode(text)
    found = words_of(encoding, (text, ""))
    if not found:
        raise DataError("the text has no word to hide")
    hidden = found[checked_place("word", word, 0, len(found) - 1)]
    cloze = model.cloze(text, hidden.span, _LIKELIEST)
    before = model.attention(text).probs
    after = model.explainer.attention(text, hide=hidden.span).probs
    change = (after - before).mean(axis=1)
    first = hidden.pieces[0]
    python = f"""from tidybert import Explainer

explainer = Explainer({model.written!r})
cloze = explainer.cloze({text!r}, hide={hidden.span}, top_k={_LIKELIEST})
print(cloze)
before = explainer.attention({text!r})
after = explainer.attention({text!r}, hide={hidden.span})
print((after.probs - before.probs).mean(axis=1)[:, {first}].round(3))
"""
    masks = []
    for mask in cloze.masks:
        if mask.position in hidden.pieces:
            layers = [asdict(each) for each in mask.layers]
            masks.append({**layers[-1], "truth": mask.truth, "layers": layers})
    return {
        "tokens": shown_tokens(encoding),
        "masks": masks,
        "mask": model.tokenizer.mask_token,
        "vocabulary": model.tokenizer.vocab_size,
        "change": {
            "from": np.ascontiguousarray(change[:, first, :]),
            "to": np.ascontiguousarray(change[:, :, first]),
        },
        "python": python,
    }


def word_apart(model: PageModel, word: str, text: str, pair: str) -> dict[str, Any]:
    """The cosine of a word's vectors in two sentences by layer, and its nearest pieces."""
    checked_text(word)
    if not word.strip() or not pair:
        raise DataError("write a word, and two sentences that have it")
    for each in (text, pair):
        model.encode(each)
    found = model.explainer.word_in_texts(word.strip(), [text, pair])
    near = model.explainer.nearest(word.strip(), top_k=_LIKELIEST)
    python = f"""from tidybert import Explainer

explainer = Explainer({model.written!r})
print(explainer.word_in_texts({word.strip()!r}, [{text!r}, {pair!r}]))
print(explainer.nearest({word.strip()!r}, top_k={_LIKELIEST}))
"""
    return {
        "cosines": found.cosines[:, 0, 1].tolist(),
        "spans": found.spans,
        "nearest": [
            {"piece": piece, "cosine": cosine}
            for piece, cosine in zip(near.pieces, near.cosines.tolist(), strict=True)
        ],
        "python": python,
    }


def word_map(model: PageModel, words: list[str]) -> dict[str, Any]:
    """The cosines (m, m) of words or texts, and a place on a plane for each: (m, 2)."""
    if not 2 <= len(words) <= _MOST_WORDS:
        raise DataError(
            f"{count_of(len(words), 'word')}: write 2 to {_MOST_WORDS}, with commas between them"
        )
    for each in words:
        model.encode(each)
    found = model.explainer.similarities(words)
    python = f"""similar = explainer.similarities({words!r})
print(similar)
print(similar.map())
"""
    return {"cosines": found.cosines, "map": found.map(), "python": python}


# The view Attention: a layer in 8 bits, a head exactly, and the arithmetic of one cell.

_STEPS: Final = 255


def attention(
    model: PageModel,
    text: str,
    pair: str = "",
    layer: int = 1,
    head: int = 1,
    row: int | None = None,
    column: int | None = None,
    causal: bool = False,
) -> dict[str, Any]:
    """The pieces, how many layers and heads there are, and the code that shows them."""
    encoding = model.encode(text, pair)
    config = model.explainer.config
    layer = min(max(layer, 1), config.num_hidden_layers)
    head = min(max(head, 1), config.num_attention_heads)
    is_open = row is not None and column is not None
    cell_code = f", row={row}, column={column}))\n" if is_open else ", row=1, column=1))\n"
    python = f"""from tidybert import Explainer

attention = Explainer({model.written!r}).attention({written_texts(text, pair)}, causal={causal})
print(attention.probs.shape)  # layers, heads, pieces that look, pieces looked at
print(attention.head(layer={layer}, head={head}))
print(attention.cell(layer={layer}, head={head}{cell_code}"""
    return {
        "tokens": shown_tokens(encoding),
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "layer": layer,
        "head": head,
        "has_pair": bool(pair),
        "python": python,
    }


def attention_layer(
    model: PageModel, text: str, layer: int, pair: str = "", causal: bool = False
) -> bytes:
    """The probabilities (N, n, n) of a layer, from 1, in steps of 1/255, as uint8."""
    found = model.attention(text, pair, causal=causal)
    at = checked_place("layer", layer, 1, found.num_layers)
    return bytes(np.rint(found.probs[at - 1] * _STEPS).astype(np.uint8).tobytes())


def attention_head(
    model: PageModel, text: str, layer: int, head: int, pair: str = "", causal: bool = False
) -> bytes:
    """The probabilities (n, n) of a head, then its scores (n, n), as little-endian float32."""
    found = model.attention(text, pair, causal=causal).head(layer, head)
    return bytes(np.stack([found.probs, found.scores]).astype("<f4").tobytes())


def cell(
    model: PageModel,
    text: str,
    layer: int,
    head: int,
    row: int,
    column: int,
    pair: str = "",
    causal: bool = False,
) -> dict[str, Any]:
    """How the piece ``row`` came to look at the piece ``column``, step by step."""
    found = model.attention(text, pair, causal=causal).cell(layer, head, row, column)
    return {
        "tokens": found.tokens,
        "row": row,
        "column": column,
        "query": found.query,
        "key": found.key,
        "products": found.products,
        "dot": found.dot,
        "scaled": found.scaled,
        "scores": found.row_scores,
        "probs": found.row_probs,
        "weighted": found.weighted_values,
        "context": found.context,
    }


# The views of fine-tuned models: Answer, Entities, Classify and Choose.

_RUNNERS_UP: Final = 5
_MOST_CHOICES: Final = 10
_CLASSIFIES: Final = ("classify", "multi-label", "regress")


_MOST_ROWS: Final = 50


def example(model: PageModel) -> dict[str, str]:
    """The first example of the RUN's dev or train that the page can show, by the names of fields.

    Empty where the RUN records no file, the file is not as it was, or others can see the page.
    """
    predictor = model.explainer.predictor if model.is_local else None
    if predictor is None:
        return {}
    files = recorded_files(Path(model.path) / ARGUMENTS_FILE)
    most = min(predictor.max_seq_length, MOST_PIECES)
    for part in ("dev", "train"):
        file = Path(str(files.get(part, {}).get("file", "")))
        if not file.is_file() or file.stat().st_size != files[part].get("bytes"):
            continue
        rows = predictor.task.read(
            str(file), need_label=False, skip_bad_rows=True, like=predictor.reading
        )
        with suppress(TidyBertError):
            for one in islice(rows, _MOST_ROWS):
                found = _fields(predictor.task, one)
                seconds = found.get("choices", found.get("question", found.get("pair", "")))
                sizes = [
                    len(model.tokenizer.encode(found["text"], each or None))
                    for each in seconds.split("\n")
                ]
                if max(sizes) <= most and max(map(len, found.values())) <= MOST_CHARACTERS:
                    return found
    return {}


def _fields(task: AnyTask, one: Any) -> dict[str, str]:
    """An example by the names of the page's fields."""
    if isinstance(one, QuestionExample):
        return {"question": one.question, "text": one.context}
    text, *pair = task.shown(one)
    choices = "\n".join(getattr(one, "choices", ()))
    return {
        "text": text,
        **({"choices": choices} if choices else {"pair": pair[0]} if pair else {}),
    }


def answer(model: PageModel, text: str, question: str) -> dict[str, Any]:
    """The answer to a question in a text, with the logits of each piece in its best window."""
    predictor = model.predictor("answer")
    model.encode(question, text)
    examples = predictor.task.from_texts([question], [text])
    features = predictor.task.features(examples, model.tokenizer, predictor.max_seq_length)
    outputs = run_features(predictor.task, predictor.model, features)
    (answered,) = predictor.task.answers(outputs, features, examples).predictions()
    found = answered.own()
    pieces: list[dict[str, Any]] = []
    for one, logits in zip(features, outputs, strict=True):
        window: ContextWindow = one.place
        for at in range(window.begin, window.end):
            if window.owned[at - window.begin]:
                start, end = logits[window.first_row + at - window.begin].tolist()
                places = int(window.tokens.starts[at]), int(window.tokens.ends[at])
                pieces.append({"at": at, "start": places[0], "end": places[1],
                               "text": text[slice(*places)], "scores": [start, end]})  # fmt: skip
    python = f"""from tidybert import Predictor

predictor = Predictor({model.written!r})
print(predictor.predict([{question!r}], [{text!r}]))
"""
    return {
        **{name: found.get(name) for name in ("answer", "start", "end", "score", "null_score")},
        "n_best": found["n_best"][:_RUNNERS_UP],
        "pieces": sorted(pieces, key=lambda each: each["at"]),
        "windows": len(features),
        "python": python,
    }


def entities(model: PageModel, text: str) -> dict[str, Any]:
    """The tag of each word and the entities that the tags mark."""
    predictor = model.predictor("tag")
    model.encode(text)
    (found,) = predictor.predict([text])
    python = f"""from tidybert import Predictor

print(Predictor({model.written!r}).predict([{text!r}]))
"""
    return {**found, "python": python}


def classify(
    model: PageModel, text: str, pair: str = "", without: int | None = None
) -> dict[str, Any]:
    """The answer, and each word's attributions and attention; ``without`` deletes a word."""
    predictor = model.predictor(*_CLASSIFIES)
    encoding = model.encode(text, pair)
    if len(encoding) > predictor.max_seq_length:
        raise DataError(
            f"the text has {len(encoding)} tokens, and the model reads "
            f"{predictor.max_seq_length}: shorten it"
        )
    found = predictor.predict([text], [pair] if pair else None)[0]
    explain, given = model.explainer.attributions, (text, pair or None)
    gradients = explain(*given, method="integrated-gradients")
    if gradients.tokens != encoding.tokens:
        raise DataError("the text spells a special token, which this view does not show: drop it")
    quick = explain(*given, method="gradient-x-input", target=_target(gradients.target))
    removed = explain(*given, method="leave-one-out", target=_target(gradients.target))
    # (n,): the mean over the heads of the last layer, of what [CLS] looks at.
    looked = model.attention(text, pair).probs[-1, :, 0].mean(axis=0)
    shown = [
        {
            "text": word.text,
            "side": word.sequence_id,
            "span": word.span,
            "gradients": float(gradients.word_values[at]),
            "quick": float(quick.word_values[at]),
            "removed": float(removed.word_values[at]),
            "attention": float(looked[list(word.pieces)].sum()),
        }
        for at, word in enumerate(gradients.words)
    ]
    python = f"""from tidybert import Explainer, Predictor

print(Predictor({model.written!r}).predict([{text!r}]{f", [{pair!r}]" if pair else ""}))
explainer = Explainer({model.written!r})
for method in ("integrated-gradients", "gradient-x-input", "leave-one-out"):
    print(explainer.attributions({written_texts(text, pair)}, method=method))
attention = explainer.attention({written_texts(text, pair)})
print(attention.probs[-1, :, 0].mean(axis=0).round(3))  # what [CLS] looks at in the last layer
"""
    return {
        **_shown_answer(found),
        "target": gradients.target,
        "score": gradients.score,
        "baseline": gradients.baseline_score,
        "gap": gradients.completeness_gap,
        "words": shown,
        "rerun": None if without is None else _rerun(model, text, pair, shown, without),
        "python": python,
    }


def _target(label: str) -> str | None:
    """A regression's value has no label to name."""
    return None if label == "score" else label


def _shown_answer(found: dict[str, Any]) -> dict[str, Any]:
    answer = TaskAnswer.of(found)
    if isinstance(answer, Scored):
        return {"labels": [None], "scores": None, "value": answer.value}
    assert isinstance(answer, LabelledAnswer)
    return {"labels": answer.given, "scores": answer.scores, "value": None}


def _rerun(
    model: PageModel, text: str, pair: str, words: list[dict[str, Any]], without: int
) -> dict[str, Any]:
    word = words[checked_place("without", without, 0, len(words) - 1)]
    start, end = word["span"]
    sides = [text, pair]
    sides[word["side"]] = (sides[word["side"]][:start] + sides[word["side"]][end:]).strip()
    predictor = model.predictor(*_CLASSIFIES)
    (found,) = predictor.predict(sides[:1], sides[1:] if pair else None)
    return {"word": word["text"], "text": sides[word["side"]], **_shown_answer(found)}


def choose(model: PageModel, text: str, choices: list[str]) -> dict[str, Any]:
    """The probability of each of the choices for a context."""
    predictor = model.predictor("choose")
    if not 2 <= len(choices) <= _MOST_CHOICES:
        raise DataError(
            f"{count_of(len(choices), 'choice')}: write 2 to {_MOST_CHOICES}, one a line"
        )
    for each in choices:
        if len(model.encode(text, each)) > min(predictor.max_seq_length, MOST_PIECES):
            raise DataError(f"the context and {each!r:.40} are too long together: shorten them")
    (found,) = predictor.predict([text], [choices])
    python = f"""from tidybert import Predictor

print(Predictor({model.written!r}).predict([{text!r}], [{choices!r}]))
"""
    return {"scores": np.array(found["scores"]), "choice": found["choice"], "python": python}


# The views of pre-trained heads: Next sentence, How it is trained, and Left to right.

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
        other = "masked" if each["became"] == model.tokenizer.mask_token else "replaced"
        each["what"] = "kept" if each["truth"] == each["became"] else other
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
    """Each next token with the ten likeliest, up to [EOS] or 64; ``temperature`` draws them."""
    checked_text(text)
    sampling = Sampling(temperature, seed=seed)
    steps = list(model.generator.steps(text, max_tokens=_MOST_STEPS, sampling=sampling))
    drawn = "" if temperature is None else f", temperature={temperature}, seed={seed}"
    python = f"""from tidybert import TextGenerator
from tidybert.inference.language_model import Sampling

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


# The view How a run goes: a RUN's curves, and a masked word as each checkpoint fills it in.

_MOST_CHECKPOINTS: Final = 8
"""Each of them is opened for a text, so that only one is in memory."""
_LIKELIEST_OF_A_RUN: Final = 3


def run_of(path: str) -> Path | None:
    """The pre-training RUN of a MODEL: its own directory, or that of its checkpoint."""
    directory = find_model(path)
    if directory.parent.name == CHECKPOINTS_FOLDER:
        directory = directory.parents[1]
    return directory if (directory / METRICS_FILE).exists() else None


@contextmanager
def _shown_of(model: PageModel) -> Iterator[None]:
    """Errors of a RUN's files as DataErrors; only its own machine learns their names."""
    try:
        yield
    except TidyBertError as error:
        said = error.message if model.is_local else "one of its files is damaged, or lacks a head"
        raise DataError(f"the RUN cannot be shown: {said}") from error


def run(model: PageModel, text: str = "", at: int = 0) -> dict[str, Any]:
    """The curves so far as an SVG, and 8 checkpoints' words for [MASK]; ``at`` asks again."""
    directory = run_of(model.path)
    with _shown_of(model):
        picture = None if directory is None else run_picture(directory)
    if directory is None or picture is None:
        raise DataError("the model has no metrics.jsonl of its pre-training: name a RUN")
    checked_text(text)
    mask = model.tokenizer.mask_token
    if text and mask not in text:
        raise DataError(f"the text has no {mask}: write it where a word is missing")
    # Evenly spread, the last among them.
    steps = list(checkpoints_by_step(directory))
    steps = steps[:: -max(1, -(-len(steps) // _MOST_CHECKPOINTS))][::-1]
    # The weights of a finished RUN come last, beside its checkpoints.
    models = [(f"step {step:,}", f"{directory}@{step}") for step in steps]
    if model.path == str(directory):
        models.append(("finished", model.path))
    fills = []
    for name, path in models if text else ():
        with _shown_of(model):
            (found,) = MaskFiller(path, device="cpu").fill([text], top_k=_LIKELIEST_OF_A_RUN)
        fills.append({"model": name, "masks": found["masks"]})
    place = str(directory) if model.is_local else model.written
    shown = [path.replace(str(directory), place, 1) for _, path in models]
    python = f"""from tidybert import MaskFiller

for model in {shown!r}:
    print(model, MaskFiller(model).fill([{text!r}], top_k={_LIKELIEST_OF_A_RUN}))
"""
    return {
        "picture": picture.svg,
        "figures": picture.description,
        "title": picture.title,
        "fills": fills,
        "python": python,
    }


VIEWS: Final[dict[str, View]] = {
    "tokens": tokens,
    "embedding": embedding,
    "words": words,
    "gap": gap,
    "attention": attention,
    "attention-layer": attention_layer,
    "attention-head": attention_head,
    "cell": cell,
    "next": next_sentence,
    "training": training,
    "left": left_to_right,
    "run": run,
    "positions": positions,
    "example": example,
    "answer": answer,
    "entities": entities,
    "classify": classify,
    "choose": choose,
    "word-apart": word_apart,
    "word-map": word_map,
}
