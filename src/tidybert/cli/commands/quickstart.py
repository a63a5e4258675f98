"""``tidybert quickstart``: the main job on the bundled tickets and weights, start to finish."""

import shlex
import shutil
import sys
from importlib import resources
from pathlib import Path
from typing import Any, Final

from tidybert.catalog import DEFAULT_MODEL, find_model
from tidybert.cli import flags
from tidybert.cli.flags import command
from tidybert.cli.output import note, print_json, print_table, say
from tidybert.errors import UsageError
from tidybert.storage.atomic_files import atomic_write_bytes
from tidybert.storage.model_files import CHECKPOINTS_FOLDER, METADATA_FILE
from tidybert.storage.output_lock import contents, output_lock
from tidybert.storage.own_files import make_directory
from tidybert.training.training_arguments import TrainingArguments

# Held-out training tickets chose: higher rates and a fourth epoch gained nothing there.
LEARNING_RATE: Final = 1e-4
TRAIN_BATCH_SIZE: Final = 16
NUM_TRAIN_EPOCHS: Final = 3
TICKETS: Final = ("train.csv", "dev.csv", "new.txt")


@command("quickstart")
class Quickstart(flags.ThreadsFlag, flags.JsonFlag):
    """Fine-tune tidybert-small on bundled support tickets, measure it, and answer new tickets.

    Takes a minute or two on two cores, and needs no file and no network.
    """

    out: Path = Path("tidybert-quickstart")
    """``--out DIR``: New directory for the model."""
    seed: int = 42
    """Random seed for head weights, example order and dropout."""
    resume: bool = False
    """``--resume``: Continue a quickstart that was stopped."""

    def run(self) -> None:
        out = self.out
        with output_lock(out):
            if not self.resume and out.exists() and not (out.is_dir() and not contents(out)):
                stopped = (out / CHECKPOINTS_FOLDER).is_dir() and not (out / METADATA_FILE).exists()
                raise UsageError(
                    f"--out {out} is there already, and nothing in it is overwritten; "
                    + ("--resume continues it, or name" if stopped else "name")
                    + " a new directory with --out"
                )
            self._answer_tickets(out)

    def _answer_tickets(self, out: Path) -> None:
        find_model(DEFAULT_MODEL)  # raises before anything slow if it is not installed
        say("tidybert quickstart: learn to send support tickets to the team that has to act")

        from tidybert.cli.commands.training import print_metrics
        from tidybert.cli.progress import shown_finetuning
        from tidybert.files.text_examples import label_names
        from tidybert.finetuning.finetuning_job import FinetuningJob
        from tidybert.finetuning.run_finetuning import run_finetuning
        from tidybert.inference.predictor import Predictor
        from tidybert.tasks.classification import Classification

        (train, dev, new), files = map(_read, TICKETS), out / "tickets"
        names = label_names(train)
        task = Classification(names)
        say(
            f"1. The data. An internet provider's customers wrote {len(train)} tickets to learn "
            f"from and {len(dev)} to measure on. Each has its team as label, for instance"
        )
        for name in names:
            note(f"   {name}: {min((one.text for one in train if one.label == name), key=len)}")
        say(
            f"2. Training. {DEFAULT_MODEL}, an encoder that has read much English, reads the "
            f"tickets {NUM_TRAIN_EPOCHS} times. tidybert measures it on dev each time, and keeps "
            "the best weights."
        )
        arguments = TrainingArguments(
            num_train_epochs=NUM_TRAIN_EPOCHS,
            train_batch_size=TRAIN_BATCH_SIZE,
            learning_rate=LEARNING_RATE,
            seed=self.seed,
        )
        with shown_finetuning(task.metric, arguments.batch_size) as reporter:
            data = (task, DEFAULT_MODEL, train, dev, arguments)
            job = FinetuningJob(*data, out=out, resume=self.resume, provenance=_provenance(files))
            finished = run_finetuning(job, reporter)
        result = finished.result
        # Files to train on and to try.
        make_directory(files)
        for name in TICKETS:
            atomic_write_bytes(files / name, _bundled(name).read_bytes())

        answers = list(Predictor(out).predict_stream(new))
        if self.json:
            told = [{"text": one.text, **said} for one, said in zip(new, answers, strict=True)]
            figures = {"num_steps": result.num_steps, "seconds": result.seconds, "run": str(out)}
            print_json({**result.metrics, "predictions": told, **figures})
            return
        say(
            f"3. The result, after {result.seconds:.0f} s of training, on the {len(dev)} dev "
            "tickets. The model did not learn from them; they only chose the best weights. Each "
            "row of the last table is a team, and its columns count where the model sent that "
            "team's tickets."
        )
        print_metrics(finished.task, result.metrics)
        say(f"4. {len(new)} new tickets without labels. The score is the probability.")
        rows = [
            (said["label"], said["score"], one.text) for one, said in zip(new, answers, strict=True)
        ]
        print_table({"team": "", "score": ".2f", "ticket": ""}, rows)
        this, run = _program(), shlex.quote(str(out))
        train_file, dev_file, new_file = (shlex.quote(str(files / name)) for name in TICKETS)
        say(f"5. The model is in {out}; transformers opens it too. What to try next:")
        for purpose, line in {
            "answer a text of your own:": f'{this} predict {run} --input "my invoice is wrong"',
            "answer a file, one text a line:": f"{this} predict {run} {new_file}",
            "measure on labelled texts:": f"{this} evaluate {run} {dev_file}",
            "train on your own file in place of the tickets (columns text and label):": (
                f"{this} finetune classify --train {train_file} --out my-model"
            ),
        }.items():
            note(f"   {purpose}\n     {line}")


def _bundled(name: str) -> Any:
    return resources.files("tidybert") / "resources" / "tickets" / name


def _read(name: str) -> list[Any]:
    from tidybert.files.text_files import read_examples

    with resources.as_file(_bundled(name)) as path:
        return list(read_examples(path, need_label=name.endswith(".csv")))


def _provenance(files: Path) -> Any:
    """The bundled tickets, under the names that their copies get."""
    from tidybert.training.runs.provenance import Provenance, file_identity

    found = {}
    for part in ("train", "dev"):
        with resources.as_file(_bundled(f"{part}.csv")) as path:
            found[part] = {**file_identity(path), "file": str(files / path.name)}
    return Provenance(files=found)


def _program() -> str:
    """The word to type for this program: its name, or its path if the shell cannot find it."""
    this = Path(sys.argv[0])
    if this.name != "tidybert":
        return f"{shlex.quote(sys.executable)} -m tidybert"
    found = shutil.which("tidybert")
    is_found = found is not None and Path(found).resolve() == this.resolve()
    return "tidybert" if is_found else shlex.quote(str(this))
