"""transformers' side of a training: its Trainer on our batches, and its fine-tuning of each task.

Models, encodings and collators follow transformers' run_glue.py, run_swag.py, run_ner.py and
run_qa.py.  Our decoders read its logits, so that both sides are scored alike.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np
import torch
import transformers

from benchmarks.harness import script, steps
from tidybert.catalog import find_model
from tidybert.data.features import Features
from tidybert.data.long_texts import DEFAULT_DOC_STRIDE
from tidybert.metrics.entity_scores import TagCounts
from tidybert.tokenization import BertTokenizer
from tidybert.training.precision import is_mixed

_SCORED_AT_ONCE: Final = 32
_IGNORED: Final = -100
_AS_BERT: Final = {"weight_decay": 0.01, "adam_epsilon": 1e-6}
_DEFAULTS: Final = {"weight_decay": 0.0, "adam_epsilon": 1e-8, "warmup_steps": 0}
"""transformers' own, with batches of 8 and a rate of 5e-5."""

Items = list[dict[str, Any]]


def train_in_order(
    model: Any,
    dataset: Any,
    batches: Sequence[list[int]],
    collate: Callable[[Any], Any],
    work: Any,
    *,
    num_parts: int = 1,
    **settings: Any,
) -> dict[str, Any]:
    """Train transformers' model in place, one step for each batch of places in the data set.

    On a GPU, processes make the batches, which go over from pinned memory.  The gradients of
    ``num_parts`` parts of a batch add up to a step.
    """
    device, profiled = torch.device(work.device), work.profiled_steps
    clock = steps.StepClock(device, len(batches) - profiled, profiled)
    on_gpu = device.type == "cuda"
    parts = [part.tolist() for batch in batches for part in np.array_split(batch, num_parts)]
    part_losses: list[torch.Tensor] = []

    class OrderedTrainer(transformers.Trainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            loader = torch.utils.data.DataLoader(
                self.train_dataset, batch_sampler=parts, collate_fn=self.data_collator,
                num_workers=script.LOADER_WORKERS if on_gpu else 0, pin_memory=on_gpu,
            )  # fmt: skip
            return self.accelerator.prepare(loader)

        def training_step(self, *given: Any, **more: Any) -> Any:
            loss = super().training_step(*given, **more)
            part_losses.append(loss.detach())
            return loss

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_args: Any, **_states: Any) -> None:
            clock.step_ended()

    with tempfile.TemporaryDirectory() as folder:
        trainer = OrderedTrainer(
            model=model,
            args=transformers.TrainingArguments(
                output_dir=folder, max_steps=len(batches), learning_rate=work.learning_rate,
                use_cpu=device.type == "cpu", bf16=is_mixed(work.precision, device),
                seed=work.seed, report_to="none",
                save_strategy="no", logging_steps=10, disable_tqdm=True,
                gradient_accumulation_steps=num_parts, accelerator_config={"non_blocking": on_gpu},
                **{**_AS_BERT, **settings},
            ),
            train_dataset=dataset,
            data_collator=collate,
            callbacks=[Clock()],
        )  # fmt: skip
        # It would take forward's **kwargs for a loss that is already divided by the parts.
        trainer.model_accepts_loss_kwargs = False
        _, seconds, _ = script.timed(trainer.train)
        # The model would otherwise score in the precision of its training, unlike ours.
        trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    losses = torch.stack(part_losses).view(-1, num_parts).sum(1).tolist()
    return {"seconds": seconds, "losses": losses, **clock.found()}


class TaskSide:
    """A task as transformers does it: its model, the items of its data set, and our scores."""

    kind: ClassVar[str]
    """The end of the name of transformers' class."""
    collator: ClassVar[Any] = transformers.DataCollatorWithPadding

    def __init__(self, task: Any, work: Any) -> None:
        directory, auto = find_model(work.model), getattr(transformers, f"AutoModelFor{self.kind}")
        self.task, self.work, self.names = task, work, list(task.label_names or ())
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
        # Packed weights are float16, in which transformers would train.
        given: dict[str, Any] = {"dtype": torch.float32}
        if "Classification" in self.kind:
            given["num_labels"] = len(self.names) or 1
        self.model = auto.from_pretrained(directory, attn_implementation="sdpa", **given)
        self.model.config.problem_type = task.problem_type
        self.collate = self.collator(self.tokenizer)

    def encode(self, examples: Sequence[Any]) -> Items:
        """Items of which ``collate`` makes a padded batch."""
        raise NotImplementedError

    def score(self, examples: Sequence[Any]) -> dict[str, Any]:
        """Our metrics of the trained model; here of one row of logits an example."""
        found = [each.logits.cpu().numpy() for _, _, each in self.outputs(self.encode(examples))]
        outputs = np.concatenate(found)
        nothing = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.uint8)
        features = [Features(*nothing, num_tokens=0, example=at) for at in range(len(examples))]
        self.task.add_labels(features, examples)
        rows = list(outputs if self.task.unit == "sequence" else outputs[:, None])
        metrics: dict[str, Any] = self.task.answers(rows, features, examples).metrics()
        return metrics

    def outputs(self, items: Items) -> Iterator[Any]:
        """By batch the items, the batch's labels or None, and the model's outputs."""
        with torch.inference_mode():
            for start in range(0, len(items), _SCORED_AT_ONCE):
                chunk = items[start : start + _SCORED_AT_ONCE]
                batch = self.collate(chunk)
                labels = batch.pop("labels", None)
                given = {name: tensor.to(self.model.device) for name, tensor in batch.items()}
                yield chunk, labels, self.model(**given)

    def encoded(self, *texts: Any, **given: Any) -> Any:
        """What the tokenizer makes of texts, cut to the work's length."""
        length = self.work.max_seq_length
        return self.tokenizer(*texts, truncation=True, max_length=length, **given)


class Texts(TaskSide):
    kind = "SequenceClassification"

    def encode(self, examples: Sequence[Any]) -> Items:
        pairs = [one.text_pair for one in examples] if examples[0].text_pair is not None else None
        encoded = self.encoded([one.text for one in examples], pairs)
        ids = {name: number for number, name in enumerate(self.names)}
        labels = [ids[one.label] if ids else float(one.label) for one in examples]
        return [
            {**{key: encoded[key][number] for key in encoded}, "labels": label}
            for number, label in enumerate(labels)
        ]


class Choices(TaskSide):
    kind, collator = "MultipleChoice", transformers.DataCollatorForMultipleChoice

    def encode(self, examples: Sequence[Any]) -> Items:
        pairs = (([one.context] * len(one.choices), one.continued()) for one in examples)
        return [
            {**self.encoded(*pair), "labels": one.label}
            for pair, one in zip(pairs, examples, strict=True)
        ]


class Tags(TaskSide):
    kind, collator = "TokenClassification", transformers.DataCollatorForTokenClassification

    def encode(self, examples: Sequence[Any]) -> Items:
        encoded = self.encoded([list(one.words) for one in examples], is_split_into_words=True)
        items = []
        for number, one in enumerate(examples):
            words = encoded.word_ids(number)
            # Only a word's first token has its tag.
            first = [
                None if row and word == words[row - 1] else word for row, word in enumerate(words)
            ]
            tags = [_IGNORED if at is None else self.names.index(one.tags[at]) for at in first]
            items.append({**{key: encoded[key][number] for key in encoded}, "labels": tags})
        return items

    def score(self, examples: Sequence[Any]) -> dict[str, Any]:
        predicted: list[list[str]] = []
        for _, labels, found in self.outputs(self.encode(examples)):
            for best, known in zip(found.logits.argmax(2).cpu(), labels, strict=True):
                predicted.append([self.names[label] for label in best[known != _IGNORED].tolist()])
        # A word that was cut off, or gave no token, has no answer.
        whole = [
            [*tags, *["O"] * (len(one.words) - len(tags))]
            for tags, one in zip(predicted, examples, strict=True)
        ]
        expected = [one.tags or () for one in examples]
        return TagCounts.compare(expected, whole, of_entities=True).metrics()


class Questions(TaskSide):
    kind = "QuestionAnswering"

    def encode(self, examples: Sequence[Any]) -> Items:
        """The model's windows, with the rows of the first right answer, or of [CLS] without one."""
        made, most = [], self.task.max_query_length
        for example in examples:
            asked = example.question
            question = self.tokenizer(asked, add_special_tokens=False, return_offsets_mapping=True)
            length = len(question["input_ids"])
            if length > most:
                # A cut question becomes the text that its tokens cover.
                asked = asked[: question["offset_mapping"][most - 1][1]]
            encoded = self.tokenizer(
                asked,
                example.context,
                truncation="only_second",
                max_length=self.work.max_seq_length,
                # transformers' stride is the overlap of two windows.
                stride=self.work.max_seq_length - min(length, most) - 3 - DEFAULT_DOC_STRIDE,
                return_overflowing_tokens=True,
                return_offsets_mapping=True,
            )
            for number, offsets in enumerate(encoded["offset_mapping"]):
                sequences = enumerate(encoded.sequence_ids(number))
                rows = [row for row, sequence in sequences if sequence == 1]
                start = end = 0
                if example.answers and rows:
                    text, begin = example.answers[0]
                    until = begin + len(text)
                    # A window that cuts the answer has none.
                    if offsets[rows[0]][0] <= begin and until <= offsets[rows[-1]][1]:
                        inside = [
                            row
                            for row in rows
                            if offsets[row][1] > begin and offsets[row][0] < until
                        ]
                        start, end = inside[0], inside[-1]
                fields = ("input_ids", "token_type_ids", "attention_mask")
                window = {name: encoded[name][number] for name in fields}
                made.append({**window, "start_positions": start, "end_positions": end})
        return made

    def score(self, examples: Sequence[Any]) -> dict[str, Any]:
        # Our decoder takes our windows, which equal theirs.
        ours = BertTokenizer.from_pretrained(find_model(self.work.model))
        features = self.task.features(examples, ours, self.work.max_seq_length)
        encoded = self.encode(examples)
        assert [one["input_ids"] for one in encoded] == [one.input_ids.tolist() for one in features]
        rows = []
        for chunk, _, found in self.outputs(encoded):
            logits = torch.stack((found.start_logits, found.end_logits), dim=2).cpu().numpy()
            rows += [each[: len(one["input_ids"])] for each, one in zip(logits, chunk, strict=True)]
        metrics: dict[str, Any] = self.task.answers(rows, features, examples).metrics()
        return metrics


_SIDES: Final = {
    "classify": Texts, "regress": Texts, "choose": Choices, "tag": Tags, "answer": Questions,
}  # fmt: skip


def run_finetuning(work: Any) -> dict[str, Any]:
    """Train and score a FinetuneWork with transformers' Trainer, on our batches in our order."""
    script.quiet_transformers()
    if work.at_defaults:
        work = replace(work, train_batch_size=8, learning_rate=5e-5)
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
        side.model, chosen if work.task == "answer" else side.encode(chosen),
        [[place_of[index] for index in batch] for batch in batches], side.collate, work,
        per_device_train_batch_size=work.train_batch_size,
        **(_DEFAULTS if work.at_defaults else {"warmup_steps": len(batches) // 10}),
    )  # fmt: skip
    # A line of results has no room for them.
    del trained["losses"]
    side.model.eval()
    metrics = side.score(test) if test else {}
    return {"metrics": metrics, **trained, "step_counts": list(map(len, batches))}
