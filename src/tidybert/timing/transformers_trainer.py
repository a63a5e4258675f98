"""transformers' Trainer on batches that are given, with the optimizer settings of our side."""

import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers

from tidybert.timing.rounds import step_times
from tidybert.training.precision import is_mixed


def train_in_order(
    model: Any,
    dataset: Any,
    batches: Sequence[list[int]],
    collate: Callable[[Any], Any],
    *,
    precision: str,
    device: torch.device = torch.device("cpu"),
    losses: list[float] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Train transformers' model in place, one step for each batch.

    Args:
        dataset: items that ``collate`` makes a batch of.
        batches: the places of each batch's items, in the order of the steps.
        losses: takes the loss of each step.
        settings: other arguments of transformers.TrainingArguments.

    Returns {"seconds", "step_seconds" (one fewer than steps)}.
    """
    ends: list[float] = []

    class OrderedTrainer(transformers.Trainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(
                self.train_dataset, batch_sampler=batches, collate_fn=self.data_collator
            )

        def training_step(self, *given: Any, **more: Any) -> Any:
            loss = super().training_step(*given, **more)
            if losses is not None:
                losses.append(float(loss))
            return loss

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_args: Any, **_states: Any) -> None:
            ends.append(time.perf_counter())

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
                dataloader_pin_memory=False,
                **settings,
            ),
            train_dataset=dataset,
            data_collator=collate,
            callbacks=[Clock()],
        )
        begin = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - begin
        # The model would otherwise score in the precision of its training, unlike ours.
        trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    return {"seconds": seconds, "step_seconds": step_times(ends)}
