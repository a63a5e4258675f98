"""transformers' side of a training: its models, tokenizer, padding collators and Trainer.

The optimizer has the settings of our side.
"""

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
import torch
import transformers

from tidybert.catalog import find_model
from tidybert.data.features import Features
from tidybert.timing.setting import LOADER_WORKERS
from tidybert.timing.step_clock import StepClock
from tidybert.timing.work import FinetuningWork, PretrainingWork
from tidybert.training.precision import is_mixed

Encode = Callable[[Sequence[Any]], list[dict[str, Any]]]
"""From examples to the items of a data set."""
# Padded rows at once on a GPU, as many as ours: all logits of a whole step would not fit.
_MICRO_BATCH_ROWS: Final = 32_768


def run_finetuning(work: FinetuningWork) -> dict[str, Any]:
    """Train and score as ``measure`` in finetuning_speed says."""
    transformers.utils.logging.set_verbosity_error()
    task, train, dev = work.read()
    transformers.set_seed(work.seed)
    model, encode, collate = (_choices if work.task == "choose" else _texts)(task, work)
    if work.freeze_layers:
        for part in (model.bert.embeddings, *model.bert.encoder.layer[: work.freeze_layers]):
            part.requires_grad_(False)
    trained = train_with_transformers(model, train, encode, collate, work)
    metrics = _score(model, encode(dev), collate, task, dev) if dev else {}
    return {"metrics": metrics, **trained}


def train_with_transformers(
    model: Any,
    train: Sequence[Any],
    encode: Callable[[Sequence[Any]], Any],
    collate: Callable[[Any], Any],
    work: FinetuningWork,
) -> dict[str, Any]:
    """Train transformers' model in place with its Trainer, on our batches in our order.

    ``encode`` makes a data set of examples and ``collate`` a batch of its items.  Returns
    {"seconds", "num_steps", "num_examples", "step_seconds", "step_examples"} as ``measure`` does.
    """
    batches = list(islice(work.batches(len(train)), work.max_steps))
    # Examples of no batch would only fill memory.
    used = sorted({index for batch in batches for index in batch})
    place_of = {index: place for place, index in enumerate(used)}
    trained = train_in_order(
        model,
        encode([train[index] for index in used]),
        [[place_of[index] for index in batch] for batch in batches],
        collate,
        precision=work.precision,
        device=torch.device(work.device),
        num_profiled=work.profiled_steps,
        per_device_train_batch_size=work.train_batch_size,
        learning_rate=work.learning_rate,
        warmup_steps=math.floor(len(batches) * 0.1),
        seed=work.seed,
    )
    return {
        **trained,
        "num_steps": len(batches),
        "num_examples": sum(map(len, batches)),
        "step_examples": [len(batch) for batch in batches],
    }


def _texts(task: Any, work: FinetuningWork) -> tuple[Any, Encode, Any]:
    """transformers' model, encoding and collator for texts, as in its run_glue.py."""
    directory = find_model(work.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    ids = {name: number for number, name in enumerate(task.label_names or ())}

    def encode(examples: Sequence[Any]) -> list[dict[str, Any]]:
        pairs = [one.text_pair for one in examples] if examples[0].text_pair is not None else None
        texts = [one.text for one in examples]
        encoded = tokenizer(texts, pairs, truncation=True, max_length=work.max_seq_length)
        labels = [ids[one.label] if ids else float(one.label) for one in examples]
        return [
            {**{key: encoded[key][number] for key in encoded}, "labels": label}
            for number, label in enumerate(labels)
        ]

    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        directory,
        num_labels=len(ids) or 1,
        problem_type=task.problem_type,
        attn_implementation=work.attention,
    )
    return model, encode, transformers.DataCollatorWithPadding(tokenizer)


def _choices(task: Any, work: FinetuningWork) -> tuple[Any, Encode, Any]:
    """transformers' model, encoding and collator for choices, as in its run_swag.py."""
    directory = find_model(work.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)

    def encode(examples: Sequence[Any]) -> list[dict[str, Any]]:
        encoded = []
        for one in examples:
            contexts = [one.context] * len(one.choices)
            pairs = tokenizer(
                contexts, one.continued(), truncation=True, max_length=work.max_seq_length
            )
            encoded.append({**pairs, "labels": one.label})
        return encoded

    model = transformers.AutoModelForMultipleChoice.from_pretrained(
        directory, attn_implementation=work.attention
    )
    return model, encode, transformers.DataCollatorForMultipleChoice(tokenizer)


def _score(
    model: Any, encoded: list[dict[str, Any]], collate: Any, task: Any, dev: Sequence[Any]
) -> dict[str, Any]:
    """The task's metrics for the answers of transformers' model to the dev examples."""
    model.eval()
    logits = []
    with torch.inference_mode():
        for start in range(0, len(encoded), 32):
            batch = collate(encoded[start : start + 32])
            batch.pop("labels")
            given = {name: tensor.to(model.device) for name, tensor in batch.items()}
            logits.append(model(**given).logits.cpu().numpy())
    outputs = np.concatenate(logits)
    nothing = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.uint8)
    features = [Features(*nothing, num_tokens=0, example=number) for number in range(len(dev))]
    task.add_labels(features, dev)
    rows = list(outputs if task.unit == "sequence" else outputs[:, None])
    metrics: dict[str, Any] = task.answers(rows, features, dev).metrics()
    return metrics


def run_pretraining(
    work: PretrainingWork, instances: Any, batches: Sequence[Any]
) -> dict[str, Any]:
    """Train on each step's instances; returns {"seconds", "step_seconds", "profile", "losses"}."""
    transformers.utils.logging.set_verbosity_error()
    transformers.set_seed(work.seed)
    corpus = instances.corpus
    tokenizer = transformers.AutoTokenizer.from_pretrained(corpus.directory)
    # On CUDA, sdpa is the memory-efficient kernel: PyTorch's flash attention takes no mask.
    settings = {
        **work.config(corpus).to_dict(),
        "attn_implementation": work.attention,
        "hidden_dropout_prob": work.dropout,
        "attention_probs_dropout_prob": work.dropout,
    }
    model = transformers.BertForPreTraining(transformers.BertConfig(**settings))
    dataset: list[dict[str, Any]] = []
    numbers: list[list[int]] = []
    for places in batches:
        numbers.append(list(range(len(dataset), len(dataset) + len(places))))
        dataset += _pairs(corpus, places, tokenizer.cls_token_id, tokenizer.sep_token_id)
    masker = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)

    def collate(chosen: list[dict[str, Any]]) -> dict[str, Any]:
        fields = ("input_ids", "token_type_ids")
        padded = tokenizer.pad(
            [{name: one[name] for name in fields} for one in chosen],
            padding="max_length",
            max_length=work.max_seq_length,
        )
        rows = [{name: padded[name][row] for name in padded} for row in range(len(chosen))]
        masked: dict[str, Any] = masker(rows)
        masked["next_sentence_label"] = torch.tensor([one["next_sentence_label"] for one in chosen])
        return masked

    losses: list[float] = []
    trained = train_in_order(
        model,
        dataset,
        numbers,
        collate,
        precision=work.precision,
        device=torch.device(work.device),
        losses=losses,
        num_parts=_num_parts(work, max(map(len, batches))),
        num_profiled=work.profiled_steps,
        learning_rate=work.learning_rate,
        warmup_steps=min(work.warmup_steps, work.num_steps // 10),
        seed=work.seed,
        torch_compile=work.compile,
        remove_unused_columns=False,
    )
    return {**trained, "losses": losses}


def _num_parts(work: PretrainingWork, num_sequences: int) -> int:
    """Parts of a step whose gradients add up: one on a CPU."""
    if work.device == "cpu":
        return 1
    given = str(work.micro_batch)
    rows = int(given) if given.isdecimal() else _MICRO_BATCH_ROWS
    return math.ceil(num_sequences * work.max_seq_length / rows)


def _pairs(corpus: Any, places: Any, cls: int, sep: int) -> list[dict[str, Any]]:
    """The instances at these places as transformers' data set holds them."""
    firsts = corpus.tokens(places.begin_a, places.end_a)
    seconds = corpus.tokens(places.begin_b, places.end_b)
    return [
        {
            "input_ids": np.concatenate(([cls], first, [sep], second, [sep])).tolist(),
            "token_type_ids": [0] * (len(first) + 2) + [1] * (len(second) + 1),
            "next_sentence_label": int(label),
        }
        for first, second, label in zip(firsts, seconds, places.label, strict=True)
    ]


def train_in_order(
    model: Any,
    dataset: Any,
    batches: Sequence[list[int]],
    collate: Callable[[Any], Any],
    *,
    precision: str,
    device: torch.device = torch.device("cpu"),
    losses: list[float] | None = None,
    num_parts: int = 1,
    num_profiled: int = 0,
    **settings: Any,
) -> dict[str, Any]:
    """Train transformers' model in place, one step for each batch.

    On a GPU, processes make the batches, which go over from pinned memory.

    Args:
        dataset: items that ``collate`` makes a batch of.
        batches: the places of each batch's items, in the order of the steps.
        losses: takes the loss of each step.
        num_parts: parts of a batch whose gradients add up to a step.
        num_profiled: the last steps, which run under the profiler and are not timed.
        settings: other arguments of transformers.TrainingArguments.

    Returns {"seconds", "step_seconds" (one fewer than timed steps), "profile"}.
    """
    clock = StepClock(device, len(batches) - num_profiled, num_profiled)
    on_gpu = device.type == "cuda"
    parts = [part.tolist() for batch in batches for part in np.array_split(batch, num_parts)]
    part_losses: list[torch.Tensor] = []

    class OrderedTrainer(transformers.Trainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            loader = torch.utils.data.DataLoader(
                self.train_dataset,
                batch_sampler=parts,
                collate_fn=self.data_collator,
                num_workers=LOADER_WORKERS if on_gpu else 0,
                pin_memory=on_gpu,
            )
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
                output_dir=folder,
                max_steps=len(batches),
                weight_decay=0.01,
                adam_epsilon=1e-6,
                use_cpu=device.type == "cpu",
                bf16=is_mixed(precision, device),
                report_to="none",
                save_strategy="no",
                logging_steps=10,
                disable_tqdm=True,
                gradient_accumulation_steps=num_parts,
                accelerator_config={"non_blocking": on_gpu},
                **settings,
            ),
            train_dataset=dataset,
            data_collator=collate,
            callbacks=[Clock()],
        )
        # It would take forward's **kwargs for a loss that is already divided by the parts.
        trainer.model_accepts_loss_kwargs = False
        begin = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - begin
        if losses is not None:
            losses += torch.stack(part_losses).view(-1, num_parts).sum(1).tolist()
        # The model would otherwise score in the precision of its training, unlike ours.
        trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    return {"seconds": seconds, "step_seconds": clock.step_seconds(), "profile": clock.profile()}
