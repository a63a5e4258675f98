"""The views of fine-tuned models: Answer, Entities, Classify and Choose."""

from typing import Any, Final

import numpy as np

from tidybert.errors import DataError
from tidybert.inference.forward import run_features
from tidybert.page.page_model import MOST_PIECES, PageModel, checked_place, written_texts
from tidybert.tasks.questions.question_features import ContextWindow

_RUNNERS_UP: Final = 5
_MOST_CHOICES: Final = 10
_CLASSIFIES: Final = ("classify", "multi-label", "regress")


def answer(model: PageModel, text: str, question: str) -> dict[str, Any]:
    """The answer to a question in a text, with the start and end logits of each piece.

    A piece has them from the window that shows it with most context.
    """
    predictor = model.predictor("answer")
    model.encode(question, text)
    examples = predictor.task.from_texts([question], [text])
    features = predictor.task.features(examples, model.tokenizer, predictor.max_seq_length)
    outputs = run_features(predictor.task, predictor.model, features)
    (found,) = predictor.task.answers(outputs, features, examples).predictions()
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
    """The answer, and for each word its attributions beside the attention that [CLS] pays to it.

    ``without`` is the number of a word to delete before the model runs again.
    """
    predictor = model.predictor(*_CLASSIFIES)
    encoding = model.encode(text, pair)
    if len(encoding) > predictor.max_seq_length:
        raise DataError(
            f"the text has {len(encoding)} tokens, and the model reads "
            f"{predictor.max_seq_length}: shorten it"
        )
    pairs = [pair] if pair else None
    (found,) = predictor.predict([text], pairs)
    explain, given = model.explainer.attributions, (text, pair or None)
    gradients = explain(*given, method="integrated-gradients")
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
    scores = found.get("scores")
    shown = found.get("labels", [found.get("label")])
    return {"labels": shown, "scores": scores, "value": found.get("value")}


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
        raise DataError(f"{len(choices)} choices: write 2 to {_MOST_CHOICES}, one a line")
    for each in choices:
        if len(model.encode(text, each)) > min(predictor.max_seq_length, MOST_PIECES):
            raise DataError(f"the context and {each!r:.40} are too long together: shorten them")
    (found,) = predictor.predict([text], [choices])
    python = f"""from tidybert import Predictor

print(Predictor({model.written!r}).predict([{text!r}], [{choices!r}]))
"""
    return {"scores": np.array(found["scores"]), "choice": found["choice"], "python": python}
