"""transformers' side of a fine-tuning: its models, tokenizer, encodings and padding collators.

They follow its examples run_glue.py, run_swag.py, run_ner.py and run_qa.py.  Our decoders read its
logits, so that both sides are scored alike.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
import transformers

from benchmarks.speed.finetune_work import FinetuneWork
from benchmarks.speed.transformers_training import train_in_order
from tidybert.catalog import find_model
from tidybert.data.features import Features
from tidybert.data.long_texts import DEFAULT_DOC_STRIDE
from tidybert.metrics.entity_scores import TagCounts
from tidybert.tasks.questions.question_files import QuestionExample
from tidybert.tokenization import BertTokenizer

_SCORED_AT_ONCE: Final = 32
_IGNORED: Final = -100

Items = list[dict[str, Any]]
"""What a data set has for examples, or windows of them."""


@dataclass(frozen=True)
class TaskSide:
    """A task as transformers does it.

    encode: from examples to the items of a data set.  collate: from items to a padded batch.
    score: from the test examples to our metrics, once the model is trained.
    """

    model: Any
    encode: Callable[[Sequence[Any]], Items]
    collate: Callable[[Items], Any]
    score: Callable[[Sequence[Any]], dict[str, Any]]


def run_finetuning(work: FinetuneWork) -> dict[str, Any]:
    """Train and score with transformers' Trainer, on our batches in our order."""
    transformers.utils.logging.set_verbosity_error()
    task, train, test = work.read()
    transformers.set_seed(work.seed)
    side = _SIDES[work.task](task, work)
    if work.freeze_layers:
        layers = side.model.bert.encoder.layer[: work.freeze_layers]
        for part in (side.model.bert.embeddings, *layers):
            part.requires_grad_(False)
    if work.task == "answer":
        # A step's examples are windows of questions.
        train = side.encode(train)
    batches = work.batches(len(train))
    # Examples of no batch would only fill memory.
    used = sorted({index for batch in batches for index in batch})
    place_of = {index: place for place, index in enumerate(used)}
    chosen = [train[index] for index in used]
    trained = train_in_order(
        side.model,
        chosen if work.task == "answer" else side.encode(chosen),
        [[place_of[index] for index in batch] for batch in batches],
        side.collate,
        precision=work.precision,
        device=torch.device(work.device),
        num_profiled=work.profiled_steps,
        per_device_train_batch_size=work.train_batch_size,
        learning_rate=work.learning_rate,
        warmup_steps=math.floor(len(batches) * 0.1),
        seed=work.seed,
    )
    side.model.eval()
    metrics = side.score(test) if test else {}
    return {"metrics": metrics, **trained, "step_counts": list(map(len, batches))}


def _opened(auto: Any, work: FinetuneWork, **settings: Any) -> tuple[Any, Any]:
    """transformers' model of a class, and its tokenizer."""
    directory = find_model(work.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = auto.from_pretrained(directory, attn_implementation=work.attention, **settings)
    return model, tokenizer


def _outputs(model: Any, items: Items, collate: Callable[[Items], Any]) -> Iterator[Any]:
    """By batch the items, the batch's labels or None, and the model's outputs."""
    with torch.inference_mode():
        for start in range(0, len(items), _SCORED_AT_ONCE):
            chunk = items[start : start + _SCORED_AT_ONCE]
            batch = collate(chunk)
            labels = batch.pop("labels", None)
            given = {name: tensor.to(model.device) for name, tensor in batch.items()}
            yield chunk, labels, model(**given)


def _score_rows(side: tuple[Any, Any, Any], task: Any, examples: Sequence[Any]) -> dict[str, Any]:
    """Our metrics of one row of logits an example."""
    model, encode, collate = side
    found = _outputs(model, encode(examples), collate)
    outputs = np.concatenate([each.logits.cpu().numpy() for _, _, each in found])
    nothing = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.uint8)
    features = [Features(*nothing, num_tokens=0, example=number) for number in range(len(examples))]
    task.add_labels(features, examples)
    rows = list(outputs if task.unit == "sequence" else outputs[:, None])
    metrics: dict[str, Any] = task.answers(rows, features, examples).metrics()
    return metrics


def _texts(task: Any, work: FinetuneWork) -> TaskSide:
    ids = {name: number for number, name in enumerate(task.label_names or ())}
    model, tokenizer = _opened(
        transformers.AutoModelForSequenceClassification,
        work,
        num_labels=len(ids) or 1,
        problem_type=task.problem_type,
    )
    collate = transformers.DataCollatorWithPadding(tokenizer)

    def encode(examples: Sequence[Any]) -> Items:
        pairs = [one.text_pair for one in examples] if examples[0].text_pair is not None else None
        texts = [one.text for one in examples]
        encoded = tokenizer(texts, pairs, truncation=True, max_length=work.max_seq_length)
        labels = [ids[one.label] if ids else float(one.label) for one in examples]
        return [
            {**{key: encoded[key][number] for key in encoded}, "labels": label}
            for number, label in enumerate(labels)
        ]

    side = (model, encode, collate)
    return TaskSide(*side, lambda examples: _score_rows(side, task, examples))


def _choices(task: Any, work: FinetuneWork) -> TaskSide:
    model, tokenizer = _opened(transformers.AutoModelForMultipleChoice, work)

    def encode(examples: Sequence[Any]) -> Items:
        encoded = []
        for one in examples:
            contexts = [one.context] * len(one.choices)
            pairs = tokenizer(
                contexts, one.continued(), truncation=True, max_length=work.max_seq_length
            )
            encoded.append({**pairs, "labels": one.label})
        return encoded

    side = (model, encode, transformers.DataCollatorForMultipleChoice(tokenizer))
    return TaskSide(*side, lambda examples: _score_rows(side, task, examples))


def _tags(task: Any, work: FinetuneWork) -> TaskSide:
    names = list(task.label_names)
    model, tokenizer = _opened(
        transformers.AutoModelForTokenClassification,
        work,
        num_labels=len(names),
        id2label=dict(enumerate(names)),
    )
    collate = transformers.DataCollatorForTokenClassification(tokenizer)

    def encode(examples: Sequence[Any]) -> Items:
        encoded = tokenizer(
            [list(one.words) for one in examples],
            is_split_into_words=True,
            truncation=True,
            max_length=work.max_seq_length,
        )
        return [
            {
                **{key: encoded[key][number] for key in encoded},
                "labels": [
                    _IGNORED if word is None else names.index(one.tags[word])
                    for word in first_pieces(encoded.word_ids(number))
                ],
            }
            for number, one in enumerate(examples)
        ]

    def score(examples: Sequence[Any]) -> dict[str, Any]:
        predicted: list[list[str]] = []
        for _, labels, found in _outputs(model, encode(examples), collate):
            for best, known in zip(found.logits.argmax(2).cpu(), labels, strict=True):
                predicted.append([names[label] for label in best[known != _IGNORED].tolist()])
        # A word that was cut off, or gave no token, has no answer.
        whole = [
            [*tags, *["O"] * (len(one.words) - len(tags))]
            for tags, one in zip(predicted, examples, strict=True)
        ]
        expected = [one.tags or () for one in examples]
        return TagCounts.compare(expected, whole, of_entities=True).metrics()

    return TaskSide(model, encode, collate, score)


def first_pieces(words: Sequence[int | None]) -> list[int | None]:
    """The word of each token that is a word's first, None for the others."""
    return [None if row and word == words[row - 1] else word for row, word in enumerate(words)]


def _answers(task: Any, work: FinetuneWork) -> TaskSide:
    model, tokenizer = _opened(transformers.AutoModelForQuestionAnswering, work)
    collate = transformers.DataCollatorWithPadding(tokenizer)

    def encode(examples: Sequence[Any]) -> Items:
        return windows(examples, tokenizer, task.max_query_length, work.max_seq_length)

    def score(examples: Sequence[Any]) -> dict[str, Any]:
        # Our decoder takes our windows, which equal theirs.
        ours = BertTokenizer.from_pretrained(find_model(work.model))
        features = task.features(examples, ours, work.max_seq_length)
        encoded = encode(examples)
        assert [one["input_ids"] for one in encoded] == [one.input_ids.tolist() for one in features]
        rows = []
        for chunk, _, found in _outputs(model, encoded, collate):
            logits = torch.stack((found.start_logits, found.end_logits), dim=2).cpu().numpy()
            rows += [each[: len(one["input_ids"])] for each, one in zip(logits, chunk, strict=True)]
        metrics: dict[str, Any] = task.answers(rows, features, examples).metrics()
        return metrics

    return TaskSide(model, encode, collate, score)


def windows(
    examples: Sequence[QuestionExample],
    tokenizer: Any,
    max_query_length: int,
    max_seq_length: int,
) -> Items:
    """The model's windows, with the rows of the first right answer, or of [CLS] without one."""
    made = []
    for example in examples:
        asked = example.question
        question = tokenizer(asked, add_special_tokens=False, return_offsets_mapping=True)
        length = len(question["input_ids"])
        if length > max_query_length:
            # A cut question becomes the text that its tokens cover.
            asked = asked[: question["offset_mapping"][max_query_length - 1][1]]
        room = max_seq_length - min(length, max_query_length) - 3
        encoded = tokenizer(
            asked,
            example.context,
            truncation="only_second",
            max_length=max_seq_length,
            # transformers' stride is the overlap of two windows.
            stride=room - DEFAULT_DOC_STRIDE,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for number, offsets in enumerate(encoded["offset_mapping"]):
            start, end = rows_of_answer(example, offsets, encoded.sequence_ids(number))
            fields = ("input_ids", "token_type_ids", "attention_mask")
            window = {name: encoded[name][number] for name in fields}
            made.append({**window, "start_positions": start, "end_positions": end})
    return made


def rows_of_answer(
    example: QuestionExample, offsets: Sequence[tuple[int, int]], sequences: Sequence[int | None]
) -> tuple[int, int]:
    """The first and the last row of the answer, or 0 and 0 if the window cuts it."""
    rows = [row for row, sequence in enumerate(sequences) if sequence == 1]
    if not example.answers or not rows:
        return 0, 0
    text, begin = example.answers[0]
    end = begin + len(text)
    if offsets[rows[0]][0] > begin or offsets[rows[-1]][1] < end:
        return 0, 0
    covering = [row for row in rows if offsets[row][1] > begin and offsets[row][0] < end]
    return covering[0], covering[-1]


_SIDES: Final[dict[str, Callable[[Any, FinetuneWork], TaskSide]]] = {
    "classify": _texts,
    "regress": _texts,
    "choose": _choices,
    "tag": _tags,
    "answer": _answers,
}
