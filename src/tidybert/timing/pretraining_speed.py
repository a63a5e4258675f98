"""Pre-training timed: tidybert and transformers on the same instances, in the same order and steps.

transformers runs as its users run it: BertForPreTraining, its Trainer, and its
DataCollatorForLanguageModeling, which masks, over sequences padded to ``max_seq_length``.  Every
measurement is a process of its own::

    python -m tidybert.timing.pretraining_speed ours '{"size": "mini", …}'

What is counted is useful tokens: those of the instances, padding left out.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidybert.timing.own_process import answer, run_apart
from tidybert.timing.setting import SIDES, in_turn, summarize
from tidybert.timing.tokenizer_speed import find_lines

if TYPE_CHECKING:
    from tidybert.corpus.token_shards import TokenCorpus
    from tidybert.pretraining.pretraining_arguments import PretrainingArguments

_CORPUS_LINES: Final = 8000
UNTIMED_STEPS: Final = 3
"""The first steps of a measurement, in which libraries choose their kernels and memory is fetched.
"""


@dataclass(frozen=True)
class PretrainingWork:
    """What both sides do."""

    size: str
    data: str
    """A directory that build-corpus wrote."""
    steps: int
    tokens_per_step: int = 8192
    max_seq_length: int = 128
    dropout: float = 0.1
    learning_rate: float = 5e-4
    warmup_steps: int = 100
    device: str = "cpu"
    seed: int = 1
    threads: int | None = None
    compile: bool = False
    micro_batch: int | str | None = None
    """Of our side; the other takes a step at once."""
    precision: str = "auto"
    """Of both sides, as pretrain has it."""


@contextmanager
def bench_corpus(data: str | None) -> Iterator[tuple[str, str]]:
    """(its name, a corpus directory): ``data``, or one of text at hand, for the block.

    A megabyte or two of the data folder's Wikipedia, else of the bundled tickets, with the
    vocabulary of minilm.
    """
    if data is not None:
        yield data, data
        return
    from tidybert.corpus.building import build_corpus
    from tidybert.tokenization import BertTokenizer

    source, lines = find_lines(_CORPUS_LINES)
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        # A document of some tens of paragraphs, as an article has.
        parts = [lines[start : start + 30] for start in range(0, len(lines), 30)]
        text.write_text("\n\n".join("\n".join(part) for part in parts) + "\n", encoding="utf-8")
        directory = Path(folder) / "corpus"
        tokenizer = BertTokenizer.from_pretrained("minilm")
        build_corpus([text], tokenizer, directory, held_out=0.05)
        yield source, str(directory)


def bench_pretraining(
    work: PretrainingWork,
    *,
    sides: Sequence[str] = SIDES,
    rounds: int = 3,
    report: Callable[[str], None] = lambda _line: None,
) -> dict[str, Any]:
    """Time the work's steps but for UNTIMED_STEPS; a round measures every side once.

    ``samples``, ``medians`` and ``ratios`` are as ``summarize`` gives them, of the quantities
    tokens_per_second, seconds_per_step and peak_mib.  ``losses`` are each side's of every step, of
    its last round.  ``mfu`` is each side's share of the device's peak, with the operations that our
    side needs for a token; None where the peak is not known.
    """
    samples: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
    losses: dict[str, list[float]] = {}
    found: dict[str, Any] = {}
    for number in range(rounds):
        for side in in_turn(sides, number):
            found = run_apart("tidybert.timing.pretraining_speed", side, asdict(work), work.threads)
            seconds = found["step_seconds"][UNTIMED_STEPS - 1 :]
            tokens = sum(found["step_tokens"][UNTIMED_STEPS:])
            values = {
                "tokens_per_second": tokens / sum(seconds),
                "seconds_per_step": statistics.mean(seconds),
                "peak_mib": found["peak_mib"],
            }
            for name, value in values.items():
                samples[side].setdefault(name, []).append(value)
            losses[side] = found["losses"]
            rate = values["tokens_per_second"]
            report(f"round {number + 1} of {rounds}: {side} {rate:,.0f} tokens/s")
    return {
        "work": asdict(work),
        "rounds": rounds,
        "threads": found["threads"],
        "losses": losses,
        "share_of_padding": found["share_of_padding"],
        **(summary := summarize(samples)),
        "mfu": {
            side: medians["tokens_per_second"] / found["peak_tokens_per_second"]
            if found["peak_tokens_per_second"]
            else None
            for side, medians in summary["medians"].items()
        },
    }


def _run(side: str, given: dict[str, Any]) -> dict[str, Any]:
    import torch

    from tidybert.corpus.token_shards import TokenCorpus
    from tidybert.pretraining.instance_options import InstanceOptions
    from tidybert.pretraining.instances import Position, PretrainingInstances
    from tidybert.pretraining.stream import InstanceStream

    work = PretrainingWork(**given)
    options = InstanceOptions(max_seq_length=work.max_seq_length)
    instances = PretrainingInstances(TokenCorpus(work.data), options, seed=work.seed)
    stream = InstanceStream(instances, work.tokens_per_step, work.tokens_per_step)
    position, batches = Position(), []
    for _ in range(work.steps):
        taken = stream.take(position)
        batches.append(instances.take(position, taken.num_sequences)[0])
        position = taken.position
    tokens = [int(instances.lengths(places).sum()) for places in batches]
    padded = sum(map(len, batches)) * work.max_seq_length
    result = _run_ours(work) if side == "ours" else _run_transformers(work, instances, batches)
    return {
        **result,
        "step_tokens": tokens,
        "share_of_padding": 1 - sum(tokens) / padded,
        "peak_tokens_per_second": peak_tokens_per_second(work, instances.corpus),
        "threads": torch.get_num_threads(),
    }


def peak_tokens_per_second(work: PretrainingWork, corpus: "TokenCorpus") -> float | None:
    """What the work's device could do by its maker's figures; None where these are not known."""
    import torch

    from tidybert.configuration import BertConfig
    from tidybert.pretraining.instance_options import MaskingOptions
    from tidybert.pretraining.throughput import flops_per_token, peak_flops

    peak = peak_flops(torch.device(work.device))
    config = BertConfig.from_name(work.size, vocab_size=corpus.manifest.vocabulary["vocab_size"])
    flops = flops_per_token(config, work.max_seq_length, MaskingOptions().predicted_share)
    return peak and peak / flops


def arguments_of(work: PretrainingWork) -> "PretrainingArguments":
    """How our side trains in a measurement."""
    from tidybert.pretraining.pretraining_arguments import PretrainingArguments

    return PretrainingArguments(
        recipe="bert",
        max_steps=work.steps,
        tokens_per_step=work.tokens_per_step,
        learning_rate=work.learning_rate,
        warmup_steps=work.warmup_steps,
        dropout=work.dropout,
        compile=work.compile,
        micro_batch=work.micro_batch,
        precision=work.precision,
        long_share=0.0,
        # Neither is part of a step.
        eval_steps=work.steps + 1,
        save_steps=work.steps + 1,
        seed=work.seed,
    )


def _run_ours(work: PretrainingWork) -> dict[str, Any]:
    from tidybert.pretraining.instance_options import InstanceOptions
    from tidybert.pretraining.loop import PretrainingCallbacks, PretrainingReport
    from tidybert.pretraining.pretraining_run import pretrain

    ends: list[float] = []
    losses: list[float] = []

    def step(done: PretrainingReport) -> None:
        ends.append(time.perf_counter())
        losses.append(done.loss)

    arguments = arguments_of(work)
    with tempfile.TemporaryDirectory() as folder:
        pretrain(
            work.size,
            work.data,
            Path(folder) / "run",
            arguments,
            instances=InstanceOptions(max_seq_length=work.max_seq_length),
            device=work.device,
            callbacks=PretrainingCallbacks(step=step),
        )
    return {"step_seconds": _differences(ends), "losses": losses}


def _run_transformers(
    work: PretrainingWork, instances: Any, batches: Sequence[Any]
) -> dict[str, Any]:
    import numpy as np
    import torch
    import transformers

    from tidybert.configuration import BertConfig
    from tidybert.training.precision import is_mixed

    transformers.utils.logging.set_verbosity_error()
    transformers.set_seed(work.seed)
    corpus = instances.corpus
    tokenizer = transformers.AutoTokenizer.from_pretrained(corpus.directory)
    config = BertConfig.from_name(work.size, vocab_size=corpus.manifest.vocabulary["vocab_size"])
    on_cuda = work.device.startswith("cuda")
    # Its default: on CUDA the memory-efficient kernel, as PyTorch's flash attention takes no mask.
    settings = {
        **config.to_dict(),
        "attn_implementation": "sdpa",
        "hidden_dropout_prob": work.dropout,
        "attention_probs_dropout_prob": work.dropout,
    }
    model = transformers.BertForPreTraining(transformers.BertConfig(**settings))
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    dataset: list[dict[str, Any]] = []
    numbers: list[list[int]] = []
    for places in batches:
        numbers.append(list(range(len(dataset), len(dataset) + len(places))))
        firsts = corpus.tokens(places.begin_a, places.end_a)
        seconds = corpus.tokens(places.begin_b, places.end_b)
        for first, second, label in zip(firsts, seconds, places.label, strict=True):
            ids = np.concatenate(([cls], first, [sep], second, [sep])).tolist()
            types = [0] * (len(first) + 2) + [1] * (len(second) + 1)
            dataset.append(
                {"input_ids": ids, "token_type_ids": types, "next_sentence_label": int(label)}
            )
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

    ends: list[float] = []
    losses: list[float] = []

    class OrderedTrainer(transformers.Trainer):  # type: ignore[misc]
        """Takes the instances that our side takes, in their order."""

        def get_train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(
                self.train_dataset, batch_sampler=numbers, collate_fn=self.data_collator
            )

        def training_step(self, *given: Any, **more: Any) -> Any:
            loss = super().training_step(*given, **more)
            losses.append(float(loss))
            return loss

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_args: Any, **_states: Any) -> None:
            ends.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        OrderedTrainer(
            model=model,
            args=transformers.TrainingArguments(
                output_dir=folder,
                max_steps=work.steps,
                learning_rate=work.learning_rate,
                warmup_steps=min(work.warmup_steps, work.steps // 10),
                weight_decay=0.01,
                adam_epsilon=1e-6,
                seed=work.seed,
                use_cpu=not on_cuda,
                bf16=is_mixed(work.precision, torch.device(work.device)),
                torch_compile=work.compile,
                report_to="none",
                save_strategy="no",
                logging_steps=10,
                disable_tqdm=True,
                remove_unused_columns=False,
                dataloader_pin_memory=False,
            ),
            train_dataset=dataset,
            data_collator=collate,
            callbacks=[Clock()],
        ).train()
    return {"step_seconds": _differences(ends), "losses": losses}


def _differences(times: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


if __name__ == "__main__":
    answer(_run)
