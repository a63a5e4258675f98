"""Train tidybert-small: masked words, pairs, and a teacher's sentence vector.

    python -m benchmarks small_train FOLDER --out RUN
    python -m benchmarks small_train FOLDER --out RUN --resume

FOLDER is what small_prepare wrote.  --start continues from another MODEL with the same tokens.  A
signal ends the run after the step at hand, with a checkpoint; --resume goes on with the same bits,
and also starts a run that has no checkpoint.  RUN is that of tidybert pretrain.  Each evaluation
tells masked words, pairs, the cosine of [CLS] (the pooler's output) and of the mean to the teacher
on held-out sentences, and the hundred masked words of cloze; it writes the model to RUN-latest.
pack_model takes a finished RUN.  The rate falls in the last fifth of the steps: train with many,
and to finish resume with --change --max-steps N, where N is a quarter more than the steps that are
done.  On a GPU take larger steps: --device cuda --tokens-per-step 131072 --micro-batch 131072
--teacher-sentences 512 --learning-rate 1.5e-3 --last-teacher-weight 20.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.script import at_least
from benchmarks.small.teaching import TaughtObjective, Teaching
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.cli.commands.pretraining.pretrain import shown_training
from tidybert.cli.output import note
from tidybert.pretraining.batches.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.pretraining_arguments import PretrainingArguments
from tidybert.pretraining.pretraining_job import PretrainingJob
from tidybert.pretraining.pretraining_run import run_pretraining


@dataclass(frozen=True, eq=False, kw_only=True)
class TaughtJob(PretrainingJob):
    """A pre-training that records its teacher."""

    teaching: Teaching

    @property
    def recorded_too(self) -> dict[str, Any]:
        return {**super().recorded_too, **vars(self.teaching)}


def main(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="what small_prepare wrote")
    parser.add_argument("--out", type=Path, required=True, metavar="RUN", help="new RUN")
    parser.add_argument("--start", type=Path, help="MODEL to begin with; default FOLDER/start")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument("--change", action="store_true", help="resume with other arguments")
    parser.add_argument("--teacher", default="minilm", help="MODEL whose mean is the vector")
    parser.add_argument("--teacher-weight", type=float, default=4.0, help="of the cosines' loss")
    parser.add_argument(
        "--last-teacher-weight", type=float, help="that of the last fifth of the steps"
    )
    parser.add_argument("--teacher-sentences", type=at_least(1), default=32, help="in a step")
    parser.add_argument("--fewer-share", type=float, default=0.6, help="of pairs, with fewer masks")
    parser.add_argument("--max-steps", type=at_least(1), default=60_000)
    parser.add_argument("--tokens-per-step", type=at_least(1), default=8192)
    parser.add_argument("--learning-rate", type=float, default=6e-4)
    parser.add_argument("--masked-lm-prob", type=float, default=0.3)
    parser.add_argument("--whole-word", action="store_true", help="mask all tokens of a word")
    parser.add_argument("--max-seq-length", type=at_least(1), default=128)
    parser.add_argument("--long-share", type=float, default=0.0, help="long steps at the end")
    parser.add_argument("--long-seq-length", type=at_least(1), default=256, help="of long steps")
    parser.add_argument("--precision", default="bfloat16", help="bfloat16 or float32")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--micro-batch", type=at_least(1), help="most tokens at once")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--eval-steps", type=at_least(1), default=500)
    parser.add_argument("--save-minutes", type=float, default=10.0)
    given = parser.parse_args()
    start, corpus = given.start or given.folder / "start", given.folder / "corpus"
    weights = given.teacher_weight, given.last_teacher_weight
    weights = weights[0], weights[0] if weights[1] is None else weights[1]
    teaching = Teaching(given.teacher, *weights, given.teacher_sentences, given.fewer_share)
    job = TaughtJob(
        start,
        corpus,
        PretrainingArguments(
            recipe="fast",
            save_steps=given.max_steps,
            **{name: getattr(given, name) for name in (
                "max_steps", "tokens_per_step", "learning_rate", "long_share", "long_seq_length",
                "precision", "seed", "eval_steps", "save_minutes", "micro_batch",
            )},
        ),
        instances=InstanceOptions(max_seq_length=given.max_seq_length),
        masking=MaskingOptions(given.masked_lm_prob, given.whole_word),
        teaching=teaching,
        out=given.out,
        resume=given.resume,
        change=given.change,
        device=given.device,
        keep_checkpoints=True,
    )  # fmt: skip
    objective = partial(
        TaughtObjective,
        teaching=teaching,
        corpus=corpus,
        latest=given.out.with_name(f"{given.out.name}-latest"),
        start=ModelDirectory(start),
        max_seq_length=given.max_seq_length,
    )
    with shown_training(given.out, None) as shown:
        reporter = replace(shown, metrics=partial(tell, shown.metrics))
        run_pretraining(job, reporter, build_objective=objective)


def tell(shown: Callable[[int, dict[str, Any]], None], step: int, metrics: dict[str, Any]) -> None:
    """Show an evaluation, with what the teacher adds to it."""
    shown(step, metrics)
    names = ("cls_cosine", "mean_cosine", "cloze_first", "cloze_first_5", "cloze_MRR")
    note(f"step {step:,}: " + ", ".join(f"{name} {metrics[name]:.4g}" for name in names))
