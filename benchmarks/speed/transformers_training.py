"""transformers' side of a training: its Trainer on our batches, and its pre-training.

The optimizer has the settings of our side.
"""

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
import transformers

from benchmarks.harness.step_clock import StepClock
from benchmarks.speed.inference_sides import LOADER_WORKERS
from tidybert.training.precision import is_mixed

if TYPE_CHECKING:
    from benchmarks.speed.pretrain import PretrainWork

# Padded rows at once on a GPU, as many as ours: all logits of a whole step would not fit.
_MICRO_BATCH_ROWS: Final = 32_768


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


def run_pretraining(work: "PretrainWork", instances: Any, batches: Sequence[Any]) -> dict[str, Any]:
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
        num_parts=parts_of_a_step(work, max(map(len, batches))),
        num_profiled=work.profiled_steps,
        learning_rate=work.learning_rate,
        warmup_steps=min(work.warmup_steps, work.num_steps // 10),
        seed=work.seed,
        torch_compile=work.compile,
        remove_unused_columns=False,
    )
    return {**trained, "losses": losses}


def parts_of_a_step(work: "PretrainWork", num_sequences: int) -> int:
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
