"""``tidybert label``: the page on which a person labels texts, or corrects labels."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tidybert.catalog import DEFAULT_MODEL
from tidybert.cli import flags
from tidybert.cli.commands.serving import server_process, show_page
from tidybert.cli.flags import command
from tidybert.cli.output import note
from tidybert.cli.progress import shown_texts
from tidybert.errors import DataError, UsageError, in_shell
from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.files.rows import count_of
from tidybert.options import flags_of, listed, option
from tidybert.server.settings import ServerSettings
from tidybert.tasks.task_options import DescriptionsOption
from tidybert.training.training_arguments import PickleOption

if TYPE_CHECKING:
    from tidybert.data.labels_file import LabelsFile
    from tidybert.page.labelling import Labelling


@command(
    "label", "out", "labels", "descriptions", "labelled", "suggest", "model", "multi_label",
    "corrections", "name", "text", "port",
)  # fmt: skip
class Label(flags.ExamplesFlags, DescriptionsOption):
    """Label texts in the browser by a key each, until Ctrl-C.

    Each answer is in labels.csv at once. The texts that teach a model most come first, and some at
    random, which measure it. Only this machine can reach the page.
    """

    PANEL: ClassVar = "Other options"

    file: str
    """``FILE``: Texts without labels, or for --corrections the file that was checked."""
    task: str = "classify"
    """``TASK``: classify, or tag to mark entities in the texts."""
    out: Path | None = None
    """``--out FILE``: CSV of labels, to begin or to go on with."""
    labels: str | None = None
    """``--labels NAME,NAME``: Names of classes, or types of entities, to begin with; you can type
    more on the page."""
    labelled: Path | None = None
    """``--labelled FILE``: Labels that are there already; they begin those of --out."""
    suggest: int | None = option(None, at_least=1)
    """``--suggest N``: Write the next N texts into --out, to be labelled in a spreadsheet, and open
    no page."""
    model: str = DEFAULT_MODEL
    """``--model MODEL``: Model whose frozen encoder reads the texts, and that is trained."""
    multi_label: bool = False
    """``--multi-label``: A text may have any number of labels."""
    corrections: Path | None = None
    """``--corrections FILE``: Fill in the corrections.csv of tidybert check FILE instead."""
    soft: bool = False
    """``--soft``: With --corrections, FILE was checked with --soft."""
    name: str = ""
    """``--name NAME``: Who labels; each row says so."""
    at_random: bool = False
    """``--at-random``: Ask all texts at random, not those that teach most."""
    seed: int = 42
    """Random seed for the texts that are drawn."""
    port: int = option(8100, at_least=0, at_most=65_535)
    """Port to listen on; 0 takes a free one."""
    no_browser: bool = False
    """``--no-browser``: Do not open a browser."""
    read: ReadOptions

    def run(self) -> None:
        if self.task not in ("classify", "tag"):
            raise UsageError(f"TASK is {self.task!r:.60}; expected classify or tag")
        if (self.out is None) == (self.corrections is None):
            raise UsageError("give one of --out labels.csv and --corrections corrections.csv")
        if self.out is not None and self.out.suffix != ".csv":
            raise UsageError(f"--out {self.out}: labels are a CSV; give a name that ends in .csv")
        begins = ("labels", "descriptions", "labelled", "suggest")
        for flag in (*begins, "multi_label", "at_random", "name"):
            if self.corrections is not None and getattr(self, flag):
                shown = f"--{flag.replace('_', '-')}"
                raise UsageError(
                    f"{shown} does not go with --corrections, whose classes are FILE's"
                )
        if self.soft and self.corrections is None:
            raise UsageError("--soft goes with --corrections, for a FILE that has probabilities")
        for flag in ("descriptions", "labelled", "suggest", "multi_label", "corrections"):
            if self.task == "tag" and getattr(self, flag):
                raise UsageError(f"--{flag.replace('_', '-')} does not go with the task tag")
        if self.suggest is not None:
            with ExitStack() as stack:
                count = self._opened(stack).propose(self.suggest)
            note(f"{count_of(count, 'text')} to label in {self.out}: fill in the column label")
            return
        process = server_process("label")
        from tidybert.server.labelling import LabelDesk, label_app

        with ExitStack() as stack:
            labelling = self._opened(stack)
            desk = LabelDesk(labelling, None if self.out is None else self._training)
            stack.callback(desk.close)
            labelling.start()
            view = labelling.view()
            equal = f"; {view['equal']:,} equal ones are not asked" if view["equal"] else ""
            note(f"{count_of(view['left'], 'text')} to ask, {view['labelled']:,} labelled{equal}")
            process.serve(
                ServerSettings(port=self.port, device="cpu"),
                lambda _line: None,
                log_requests=False,
                listening=partial(show_page, self.no_browser),
                app=lambda engine: label_app(desk, engine),
            )

    def _opened(self, stack: ExitStack) -> "Labelling":
        """The labelling; its file is locked as long as the stack is open."""
        from tidybert.data.labels_file import CorrectionsFile, LabelsFile
        from tidybert.files.text_examples import TextExample, label_names
        from tidybert.files.text_files import read_examples, read_soft_examples
        from tidybert.inference.loading import check_model
        from tidybert.inference.zero_shot import read_descriptions
        from tidybert.page.labelling import Labelling, LabelSettings, Suspect

        report, corrects = ReadReport(), self.corrections is not None
        if not corrects:
            # Refused before anything is labelled: nothing could learn from the labels.
            check_model(self.model, to_train=True)
        rows: Any = {"skip_bad_rows": self.skip_bad_rows, "report": report}
        rows |= {} if corrects else {"need_text": True}
        reader = read_soft_examples if self.soft else read_examples
        examples = list(reader(self.file, self.read, need_label=corrects, **rows))
        note(*report.lines(in_shell))
        if self.corrections is not None:
            found = stack.enter_context(CorrectionsFile.opened(self.corrections))
            if not found.rows:
                raise DataError(f"{self.corrections}: it has no row to correct")
            suspects = [
                Suspect(one.get("label", ""), one.get("suggested", ""), one.get("why", ""))
                for one in found.rows
            ]
            settings = LabelSettings(
                file=self.file, out=str(self.corrections), model=None,
                classes=label_names(examples), suspects=suspects,
            )  # fmt: skip
            asked = [
                TextExample(one["text"], one.get("text_pair") or None, None, int(one["row"]))
                for one in found.rows
            ]
            return Labelling(asked, found, settings)
        assert self.out is not None
        tags = self.task == "tag"
        if tags and examples[0].text_pair is not None:
            raise UsageError(f"{self.file} has pairs of texts: name one column with --text")
        if any(one.label is not None for one in examples):
            note(f"{self.file} has labels, which are not read: --labelled FILE begins with labels")
        how: Any = {"is_pair": examples[0].text_pair is not None, "multi_label": self.multi_label}
        how["of_entities"] = tags
        store = stack.enter_context(LabelsFile.opened(self.out, by=self.name, **how))
        if self.labelled is not None:
            self._begin(store, is_pair=how["is_pair"])
        described = read_descriptions(self.descriptions) if self.descriptions else {}
        settings = LabelSettings(
            file=self.file, out=str(self.out), model=None if tags else self.model,
            classes=list(dict.fromkeys([*listed(self.labels), *described])),
            descriptions=described,
            multi_label=self.multi_label, of_entities=tags, at_random=tags or self.at_random,
            seed=self.seed,
            opening={"device": self.device, "allow_pickle": self.allow_pickle},
        )  # fmt: skip
        return Labelling(examples, store, settings, partial(shown_texts, "encoding"))

    def _begin(self, store: "LabelsFile", *, is_pair: bool) -> None:
        """Copy the labels of --labelled of texts that the store does not know."""
        from tidybert.data.labels_file import SEPARATOR, Answer
        from tidybert.files.label_rows import LABELLED, NONE
        from tidybert.files.text_files import read_examples
        from tidybert.tasks.text_task import TextTask

        known = {one.key for one in store.read()}
        found = []
        rows: Any = {"skip_bad_rows": self.skip_bad_rows, "multi_label": self.multi_label}
        for one in read_examples(str(self.labelled), None, need_label=True, **rows):
            labels = one.labels if one.labels is not None else (one.label or "",)
            if self.multi_label and any(SEPARATOR in name for name in labels):
                raise DataError(
                    f"{self.labelled}:{one.row}: a comma separates labels in {self.out}"
                )
            if (one.text_pair is not None) != is_pair:
                raise DataError(f"{self.labelled}:{one.row}: pairs and single texts do not mix")
            status = LABELLED if labels else NONE
            answer = Answer(tuple(TextTask.shown(one)), labels, status, one.drawn or "")
            if answer.key not in known:
                known.add(answer.key)
                found.append(answer)
        store.add(found)
        note(f"{self.out} has {count_of(len(found), 'label')} of {self.labelled} now")

    def _training(self, run: Path, report: Path) -> list[str]:
        """The command of a training by the default way."""
        words = ["finetune", self.task, self.model, "--train", str(self.out)]
        words += ["--multi-label"] if self.multi_label else []
        words += flags_of(self, PickleOption, flags.DeviceFlag)
        if self.task == "classify" and not self.multi_label:
            words += flags_of(self, DescriptionsOption)
            words += [] if self.labels is None else ["--labels", self.labels]
        return [*words, "--seed", str(self.seed), "--out", str(run), "--report", str(report)]
