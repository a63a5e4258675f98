"""A thing is declared once: in a copy of src it is added by editing as few files as a test says.

``House`` is the copy.  A test edits it, runs code in it, and says which files it had to touch: what
the added thing does where it is used is not its subject.  What is made up is named so that nobody
gives the name to something real.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tidybert

PACKAGE = Path(tidybert.__file__).parent
TESTS = Path(__file__).parent


class House:
    """A copy of src, which may be edited; ``touched`` are the files that were."""

    def __init__(self, folder: Path) -> None:
        self.src = folder / "src"
        self.touched: set[str] = set()
        # With the bytecode: Python compiles only the files that are edited.
        ignored = shutil.ignore_patterns("resources")
        shutil.copytree(PACKAGE, self.src / "tidybert", ignore=ignored)
        (self.src / "tidybert" / "resources").symlink_to(PACKAGE / "resources")

    def add(self, file: str, *, before: str, text: str) -> None:
        """Add lines to a file of the package, before the only line that begins with ``before``."""
        path = self.src / "tidybert" / file
        lines = path.read_text(encoding="utf-8").splitlines()
        (place,) = (n for n, line in enumerate(lines) if line.strip().startswith(before))
        path.write_text("\n".join([*lines[:place], text, *lines[place:], ""]), encoding="utf-8")
        self.touched.add(file)

    def run(self, code: str) -> Any:
        """What code in the copy leaves in ``found``, which JSON can hold."""
        done = self.python("-c", f"import json\n{code}\nprint(json.dumps(found))")
        return json.loads(done.splitlines()[-1])

    def python(self, *arguments: str) -> str:
        """What Python prints that imports the copy."""
        environment = {**os.environ, "PYTHONPATH": str(self.src), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


FLAGS = """
import contextlib, io
from tidybert.cli import main

def flag(command, name):
    # The shell's flag: whether it is there, and what it is for.
    return [each.help for each in main.program().commands[command].params if each.name == name]

def refused(words):
    # The message of a command line that is wrong.
    with contextlib.redirect_stderr(io.StringIO()) as said:
        assert main.run(words.split()) == 2
    return said.getvalue()
"""


@dataclass(frozen=True)
class Flag:
    """A field that is added to a file, and what it must be to each face."""

    file: str
    before: str
    field: str
    code: str
    """Python that leaves in ``found`` what the faces know of it."""
    expected: dict[str, Any]


ADDED = {
    "training": Flag(
        "training/training_arguments.py",
        "logging_steps",
        "    zigzag_share: float = option(0.0, STEPS, at_least=0, below=1)\n"
        '    """Share of each label that all classes get."""',
        """
from typing import get_type_hints
from sklearn.base import clone
from tidybert import BertClassifier, BertTagger
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.keywords import FinetuneOptions
from tidybert.options import STEPS, changes_of
from tidybert.training.training_arguments import TrainingArguments

given = TrainingArguments(zigzag_share=0.1)
wrong = "finetune classify x --train x --out x --zigzag-share 1.5"
found = {
    "flag": flag("finetune", "zigzag_share"),
    "keyword": get_type_hints(FinetuneOptions)["zigzag_share"].__name__,
    "parameter": clone(BertTagger(zigzag_share=0.1)).get_params()["zigzag_share"],
    "documented": "zigzag_share: Share of each label" in BertClassifier.__doc__,
    "recorded": FinetuningJob("classify", "x", "y", None, given).recorded()["zigzag_share"],
    "refused": refused(wrong),
    "changes the steps": changes_of(TrainingArguments)["zigzag_share"] is STEPS,
}
""",
        {
            "flag": ["Share of each label that all classes get."],
            "keyword": "float",
            "parameter": 0.1,
            "documented": True,
            "recorded": 0.1,
            "refused": "error: --zigzag-share is 1.5; expected a fraction from 0 to below 1\n",
            "changes the steps": True,
        },
    ),
    "a task": Flag(
        "tasks/task_options.py",
        "min_coverage: float",
        "    zigzag_words: int | None = option(\n"
        '        None, STEPS, above=0, of_steps=True, commands=("finetune",)\n'
        "    )\n"
        '    """``classify``: fewest words of a class."""',
        """
from tidybert import BertClassifier, BertTagger
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.keywords import FinetuneOptions
from tidybert.finetuning.run_finetuning import _may_learn_by_contrast
from tidybert.options import STEPS, changes_of
from tidybert.tasks.registry import task_flags, unused_flags
from tidybert.tasks.task_options import ClassOptions

jobs = [
    FinetuningJob("classify", "x", "y", task_options=ClassOptions(zigzag_words=given))
    for given in (None, 2)
]
made = BertClassifier(zigzag_words=2)
found = {
    "flag": flag("finetune", "zigzag_words"),
    "shown": [
        "--zigzag-words" in main.program().commands[each].get_help(
            main.program().commands[each].context_class(main.program().commands[each])
        )
        for each in ("finetune", "check")
    ],
    "keyword": "zigzag_words" in FinetuneOptions.__annotations__,
    "parameter": made.get_params()["zigzag_words"],
    "documented": "zigzag_words: Classify: fewest" in BertClassifier.__doc__
    or "zigzag_words: classify: fewest" in BertClassifier.__doc__,
    "option": made._task_options(ClassOptions).zigzag_words,
    "of others": "zigzag_words" in BertTagger().get_params(),
    "recorded": jobs[1].recorded()["zigzag_words"],
    "changes the steps": changes_of(ClassOptions)["zigzag_words"] is STEPS,
    "learned by contrast": [_may_learn_by_contrast(each) for each in jobs],
    "unused": [each for each in ("tag", "classify") if "zigzag_words" in unused_flags(each)],
    "refused": refused("finetune classify x --train x --out x --zigzag-words 0"),
}
""",
        {
            "flag": ["classify: fewest words of a class."],
            "shown": [True, False],
            "keyword": True,
            "parameter": 2,
            "documented": True,
            "option": 2,
            "of others": False,
            "recorded": 2,
            "changes the steps": True,
            "learned by contrast": [True, False],
            "unused": ["tag"],
            "refused": "error: --zigzag-words is 0; expected a number above 0\n",
        },
    ),
    "pre-training": Flag(
        "pretraining/pretraining_arguments.py",
        "max_grad_norm",
        '    zigzag_noise: Literal["none", "some"] = option("none", STEPS)\n'
        '    """Add none or some noise to gradients."""',
        """
from dataclasses import asdict
from tidybert.pretraining.pretraining_arguments import PretrainingArguments

found = {
    "flags": [flag(each, "zigzag_noise") for each in ("pretrain", "train-lm")],
    "recorded": asdict(PretrainingArguments(zigzag_noise="some"))["zigzag_noise"],
    "refused": refused("pretrain x --data x --out x --zigzag-noise much"),
}
""",
        {
            "flags": [["Add none or some noise to gradients."]] * 2,
            "recorded": "some",
            "refused": "error: --zigzag-noise is much; expected none or some\n",
        },
    ),
    "serve": Flag(
        "server/settings.py",
        "max_body",
        "    zigzag_seconds: float = option(5.0, above=0)\n"
        '    """Close a connection after this many seconds without a request."""',
        """
from tidybert.server.settings import ServerSettings

found = {
    "flag": flag("serve", "zigzag_seconds"),
    "setting": ServerSettings(zigzag_seconds=2.0).zigzag_seconds,
    "refused": refused("serve x --zigzag-seconds 0"),
}
""",
        {
            "flag": ["Close a connection after this many seconds without a request."],
            "setting": 2.0,
            "refused": "error: --zigzag-seconds is 0.0; expected a number above 0\n",
        },
    ),
    "vectors": Flag(
        "inference/options.py",
        "normalize",
        '    zigzag: Literal["no", "yes"] = option("no")\n'
        '    """Take the mean of all vectors away, or not: no or yes."""',
        """
import inspect
from tidybert import BertVectorizer, Embedder
from tidybert.errors import UsageError

try:
    Embedder("tidybert-small", zigzag="maybe")
except UsageError as error:
    wrong = str(error)
found = {
    "flag": flag("embed", "zigzag"),
    "keyword": inspect.signature(Embedder).parameters["zigzag"].default,
    "parameter": BertVectorizer(zigzag="yes").get_params()["zigzag"],
    "documented": "zigzag: Take the mean" in Embedder.__doc__,
    "refused": [wrong, refused("embed tidybert-small x --zigzag maybe")],
}
""",
        {
            "flag": ["Take the mean of all vectors away, or not: no or yes."],
            "keyword": "no",
            "parameter": "yes",
            "documented": True,
            "refused": [
                "zigzag is maybe; expected no or yes",
                "error: --zigzag is maybe; expected no or yes\n",
            ],
        },
    ),
}


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a house with all these fields knows of each; no other file was touched."""
    house, code = House(tmp_path_factory.mktemp("flags")), [FLAGS, "every = {}"]
    for name, one in ADDED.items():
        house.add(one.file, before=one.before, text=one.field)
        code += [one.code, f"every[{name!r}] = found"]
    found: dict[str, Any] = house.run("\n".join([*code, "found = every"]))
    # Type checkers read what this command writes.
    house.python(str(TESTS / "stubs.py"), "--write")
    stub = (house.src / "tidybert/finetuning/keywords.pyi").read_text(encoding="utf-8")
    assert stub.count("    zigzag_share: float") == 2
    assert house.touched == {one.file for one in ADDED.values()}
    return found


@pytest.mark.parametrize("name", ADDED)
def test_a_flag_is_one_field(name: str, added: dict[str, Any]) -> None:
    assert added[name] == ADDED[name].expected


def test_a_format_is_a_row_of_one_table(house: House) -> None:
    row = '    "zigzag": FileFormat("a zigzag a line", (".zig",), "lines", plain_lines, ()),'
    house.add("files/formats.py", before='"swag": FileFormat(', text=row)

    found = house.run(f"""{FLAGS}
from typing import get_type_hints
from tidybert.files.formats import FORMATS
from tidybert.finetuning.keywords import FinetuneOptions

*first, last = FORMATS
listed = f"{{', '.join(first)}} or {{last}}. If not set: by suffix or content."
keyword = str(get_type_hints(FinetuneOptions)["format"])
found = ["zigzag" in FORMATS, flag("check", "format") == [listed], "zigzag" in keyword]
""")

    assert found == [True, True, True]
    assert len(house.touched) == 1


def test_a_metric_is_declared_and_computed_in_one_file(house: House) -> None:
    house.add(
        "metrics/text_scores.py",
        before="matthews: Annotated[",
        text='    zigzag: Annotated[float, Metric("fraction that is wrong")]',
    )
    house.add(
        "metrics/text_scores.py",
        before="if self._losses is not None:",
        text='        scores["zigzag"] = 1.0 - scores["accuracy"]',
    )

    found = house.run("""
from typing import get_type_hints
from tidybert.metrics.metric import scale_of
from tidybert.metrics.text_scores import classification_metrics
from tidybert.tasks.answer_types import ClassMetrics
from tidybert.tasks.classification import Classification

value = classification_metrics([0, 1], [0, 0], ["a", "b"])["zigzag"]
typed = get_type_hints(ClassMetrics)["zigzag"] is float
found = [value, Classification.meanings["zigzag"], scale_of("zigzag"), typed]
""")

    assert found == [0.5, "fraction that is wrong", [0.0, 1.0], True]
    assert len(house.touched) == 1


HEAD = '''
class BertForZigzag(BertWithTokenHead):
    """A rating of every token."""

    parts = (HeadPart("the zigzag head", "zigzag", {"zigzag": "zigzag"}, is_fine_tuned=True),)
    pipeline_tag = "token-zigzag"

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.zigzag = Linear(config.hidden_size, 1)

'''


def test_a_head_is_added_in_three_files(house: House) -> None:
    house.add("modeling/heads.py", before="_HEADS: Final", text=HEAD)
    house.add(
        "modeling/__init__.py",
        before="from tidybert.modeling.heads import CausalLM",
        text="from tidybert.modeling.heads import BertForZigzag as BertForZigzag",
    )
    house.add("__init__.py", before='"BertForPreTraining",', text='        "BertForZigzag",')

    found = house.run("""
import tidybert
from tidybert.checkpoints.converting import HEADS
from tidybert.checkpoints.weights import head_names
from tidybert.modeling.heads import ARCHITECTURES

head = ARCHITECTURES["BertForZigzag"]
found = [head is tidybert.BertForZigzag, HEADS["zigzag"].words, head_names()["zigzag.weight"]]
""")

    assert found == [True, "the zigzag head", ["zigzag.weight"]]
    assert len(house.touched) == 3


KIND = """
ZIGZAG: Final = ExampleKind(
    "zigzag", "texts with titles", (Part("title"), Part("text")), "the title, then the text",
    '["a title"], ["a text"]', "Zigzag", "A text with its title.",
)
KINDS["zigzag"] = ZIGZAG
"""


def test_a_kind_of_input_is_one_object(house: House) -> None:
    pytest.importorskip("fastapi")
    house.add("checkpoints/example_kinds.py", before="def name_of(", text=KIND)

    found = house.run("""
from tidybert.checkpoints.example_kinds import KINDS
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.server.protocols.native import OBJECTS

kind = KINDS["zigzag"]
named = '"inputs": "zigzag"' in ModelMetadata("classify", inputs=kind).to_json()
read = OBJECTS[kind](title="a", text="b")
found = [named, kind.written, kind.of_json([read]), kind.of_texts(["a", "b"])]
""")

    assert found == [True, '{"title": …, "text": …}', [["a"], ["b"]], [["a"], ["b"]]]
    assert len(house.touched) == 1
