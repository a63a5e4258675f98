"""``tidybert quickstart``: the main job on the bundled tickets and weights, start to finish."""

import shlex
import shutil
import sys
import textwrap
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidybert.catalog import DEFAULT_MODEL, find_model
from tidybert.cli import flags
from tidybert.cli.commands.pretraining.pretrain import shown_training
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json, print_line, print_table, say
from tidybert.errors import UsageError
from tidybert.pretraining.pretraining_arguments import LanguageModelArguments
from tidybert.storage.atomic_files import atomic_write_bytes
from tidybert.storage.model_files import CHECKPOINTS_FOLDER, METADATA_FILE
from tidybert.storage.output_lock import contents, output_lock
from tidybert.storage.own_files import make_directory
from tidybert.system.terminal import MAX_WIDTH
from tidybert.training.training_arguments import TrainingArguments

if TYPE_CHECKING:
    from tidybert.files.text_examples import TextExample


# ``tidybert quickstart --poem``: learn a poem by heart, then say it from its first two words.
#
# The poem is Li Bai's "Quiet Night Thought" (8th century), in Chinese, a token a character, and in
# an English rendering of this project's own.

POEM: Final = "quiet-night-thought.txt"
PROMPTS: Final = ("床前", "Before my")
MODEL: Final = "transformer-tiny"
MAX_STEPS: Final = 150
# A step reads both versions once or twice.
TOKENS_PER_STEP: Final = 128
MAX_SEQ_LENGTH: Final = 64
# Of the end of a prompt, in the table of steps.
_SHOWN: Final = 46


def recite(out: Path, program: str, *, seed: int, resume: bool, as_json: bool) -> None:
    """Train the model in ``out``, and print each step of both recitations, and what is next.

    ``program`` is the word to type for tidybert.
    """
    from tidybert.inference.language_model import TextGenerator
    from tidybert.pretraining.batches.instance_options import NextTokenOptions
    from tidybert.pretraining.pretraining_job import PretrainingJob
    from tidybert.pretraining.pretraining_run import run_pretraining

    poem = resources.files("tidybert") / "resources" / "poem" / POEM
    say("tidybert quickstart --poem: learn a poem by heart, then say it from its first two words")
    say(
        "1. The text. Li Bai wrote it; the Chinese is read a character at a time, and the English "
        "a word at a time."
    )
    note(*(f"   {line}" for line in poem.read_text("utf-8").splitlines()))
    say(
        f"2. Training. A {MODEL} learns, at each token, to say the next one. It sees only the "
        f"tokens before it, and reads both versions in each of {MAX_STEPS} steps."
    )
    with resources.as_file(poem) as path, shown_training(out, None) as reporter:
        job = PretrainingJob(
            MODEL,
            path,
            LanguageModelArguments(
                max_steps=MAX_STEPS,
                tokens_per_step=TOKENS_PER_STEP,
                eval_tokens=TOKENS_PER_STEP,
                seed=seed,
            ),
            instances=NextTokenOptions(max_seq_length=MAX_SEQ_LENGTH),
            out=out,
            resume=resume,
            device="cpu",
        )
        result = run_pretraining(job, reporter)
    atomic_write_bytes(out / POEM, poem.read_bytes())

    generator = TextGenerator(out, device="cpu")
    documents = poem.read_text("utf-8").strip().split("\n\n")
    answers = []
    say(
        f"3. From two words, after {result.seconds:.0f} s of training: the likeliest next token "
        "joins the prompt, until the model says [EOS]."
    )
    for prompt, document in zip(PROMPTS, documents, strict=True):
        steps = list(generator.steps(prompt))
        text = steps[-1].text
        is_right = steps[-1].is_end and text == generator.spelled(document)
        answers.append(
            {
                "prompt": prompt,
                "text": text,
                "is_word_for_word": is_right,
                "steps": [
                    {"prompt": one.prompt, "token": one.token, "probability": one.probability}
                    for one in steps
                ],
            }
        )
        if not as_json:
            _print(answers[-1])
    if as_json:
        print_json({**result.metrics, "answers": answers, "run": str(out)})
        return
    say(f"4. The model is in {out}. What to try next:")
    run, file = shlex.quote(str(out)), shlex.quote(str(out / POEM))
    for purpose, command in (
        ("begin it in another way:", f'{program} generate {run} "I lift"'),
        ("see how likely it finds each token:", f'echo "I bow my head" | {program} score {run} -'),
        (
            "train on a text of your own, some thousand steps where it is longer:",
            f"{program} train-lm {file} --out my-model --max-steps 150 --tokens-per-step 128",
        ),
    ):
        note(f"   {purpose}\n     {command}")


def _print(answer: dict[str, Any]) -> None:
    print_table(
        {"prompt": "left", "next token": "left", "probability": "right"},
        [
            (_end(one["prompt"]), one["token"], f"{one['probability']:.2f}")
            for one in answer["steps"]
        ],
    )
    how = "word for word" if answer["is_word_for_word"] else "not as it was written"
    print_line(f"\n{textwrap.fill(answer['text'], MAX_WIDTH)}\n({how})\n")


def _end(text: str) -> str:
    if len(text) <= _SHOWN:
        return text
    end = text[1 - _SHOWN :]
    return f"… {end.partition(' ')[2] or end}"


# Held-out training tickets chose: higher rates and a fourth epoch gained nothing there.
LEARNING_RATE: Final = 1e-4
TRAIN_BATCH_SIZE: Final = 16
NUM_TRAIN_EPOCHS: Final = 3
TICKETS: Final = ("train.csv", "dev.csv", "new.txt")


@dataclass(frozen=True, kw_only=True)
class QuickstartFlags(flags.ThreadsFlag, flags.JsonFlag):
    poem: bool = False
    """``--poem``: Instead, train a language model on a poem, and have it say the poem."""
    out: Path | None = None
    """``--out DIR``: New directory for the model. If not set: tidybert-quickstart, or
    tidybert-poem."""
    seed: int = 42
    """Random seed for head weights, example order and dropout."""
    resume: bool = False
    """``--resume``: Continue a quickstart that was stopped."""


@takes(given=QuickstartFlags)
def quickstart(*, given: QuickstartFlags) -> None:
    """Fine-tune tidybert-small on bundled support tickets, measure it, and answer new tickets.

    Takes a minute or two on two cores, and needs no file and no network.
    """
    out = given.out or Path("tidybert-poem" if given.poem else "tidybert-quickstart")
    with output_lock(out):
        if not given.resume:
            _check_new(out)
        if given.poem:
            recite(out, _program(), seed=given.seed, resume=given.resume, as_json=given.json)
        else:
            _quickstart(given, out)


def _quickstart(given: QuickstartFlags, out: Path) -> None:
    arguments = TrainingArguments(
        num_train_epochs=NUM_TRAIN_EPOCHS,
        train_batch_size=TRAIN_BATCH_SIZE,
        learning_rate=LEARNING_RATE,
        seed=given.seed,
    )
    find_model(DEFAULT_MODEL)  # raises before anything slow if it is not installed
    say("tidybert quickstart: learn to send support tickets to the team that has to act")

    from tidybert.cli.progress import shown_training
    from tidybert.cli.results import print_metrics
    from tidybert.files.text_examples import label_names
    from tidybert.finetuning.finetuning_job import FinetuningJob
    from tidybert.finetuning.run_job import run_finetuning
    from tidybert.inference.predictor import Predictor
    from tidybert.tasks.classification import Classification

    train, dev, new = map(_read, TICKETS)
    names = label_names(train)
    task = Classification(names)
    say(
        f"1. The data. An internet provider's customers wrote {len(train)} tickets to learn from "
        f"and {len(dev)} to measure on. Each has its team as label, for instance"
    )
    for name in names:
        note(f"   {name}: {min((one.text for one in train if one.label == name), key=len)}")
    say(
        f"2. Training. {DEFAULT_MODEL}, an encoder that has read much English, reads the tickets "
        f"{NUM_TRAIN_EPOCHS} times. tidybert measures it on dev each time, and keeps the best "
        "weights."
    )
    with shown_training(task.metric, arguments.batch_size) as reporter:
        job = FinetuningJob(
            task, DEFAULT_MODEL, train, dev, arguments, out=out, resume=given.resume
        )
        finished = run_finetuning(job, reporter)
    result = finished.result
    _copy_tickets(out / "tickets")

    predictor = Predictor(out)
    answered = list(zip(predictor.predict_stream(new), new, strict=True))
    if given.json:
        print_json(
            {
                **result.metrics,
                "predictions": [{"text": one.text, **answer} for answer, one in answered],
                "num_steps": result.num_steps,
                "seconds": result.seconds,
                "run": str(out),
            }
        )
        return
    say(
        f"3. The result, after {result.seconds:.0f} s of training, on the {len(dev)} dev tickets. "
        "The model did not learn from them; they only chose the best weights. Each row of the last "
        "table is a team, and its columns count where the model sent that team's tickets."
    )
    print_metrics(finished.task, finished.result.metrics)
    say(f"4. {len(new)} new tickets without labels. The score is the probability.")
    print_table(
        {"team": "left", "score": "right", "ticket": "left"},
        [(answer["label"], f"{answer['score']:.2f}", one.text) for answer, one in answered],
    )
    say(f"5. The model is in {out}; transformers opens it too. What to try next:")
    for purpose, command in _next_commands(out):
        note(f"   {purpose}\n     {command}")


def _check_new(out: Path) -> None:
    if not out.exists() or (out.is_dir() and not contents(out)):
        return
    is_unfinished = (out / CHECKPOINTS_FOLDER).is_dir() and not (out / METADATA_FILE).exists()
    raise UsageError(
        f"--out {out} is there already, and nothing in it is overwritten; "
        + ("--resume continues it, or name" if is_unfinished else "name")
        + " a new directory with --out"
    )


def _read(name: str) -> "list[TextExample]":
    from tidybert.files.text_files import read_examples

    with resources.as_file(_bundled(name)) as path:
        return list(read_examples(path, need_label=name.endswith(".csv")))


def _bundled(name: str) -> "resources.abc.Traversable":
    return resources.files("tidybert") / "resources" / "tickets" / name


def _copy_tickets(folder: Path) -> None:
    """Copy the tickets to a folder beside the model, as files to train on and to try."""
    make_directory(folder)
    for name in TICKETS:
        atomic_write_bytes(folder / name, _bundled(name).read_bytes())


def _next_commands(out: Path) -> list[tuple[str, str]]:
    tidybert = _program()
    run, train, dev, new = (
        shlex.quote(str(path)) for path in (out, *(out / "tickets" / name for name in TICKETS))
    )
    return [
        ("answer a text of your own:", f'{tidybert} predict {run} --input "my invoice is wrong"'),
        ("answer a file, one text a line:", f"{tidybert} predict {run} {new}"),
        ("measure on labelled texts:", f"{tidybert} evaluate {run} {dev}"),
        (
            "train on your own file in place of the tickets (columns text and label):",
            f"{tidybert} finetune classify --train {train} --out my-model",
        ),
    ]


def _program() -> str:
    """The word to type for this program: its name, or its path if the shell cannot find it."""
    this = Path(sys.argv[0])
    if this.name != "tidybert":
        return f"{shlex.quote(sys.executable)} -m tidybert"
    found = shutil.which("tidybert")
    is_found = found is not None and Path(found).resolve() == this.resolve()
    return "tidybert" if is_found else shlex.quote(str(this))
