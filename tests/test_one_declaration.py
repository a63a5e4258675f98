"""A thing is declared once: in a copy of src it is added by editing as few files as a test says.

``House`` is the copy.  A test edits it, runs code in it, and says which files it had to touch: what
the added thing does where it is used is not its subject.
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
        ignored = shutil.ignore_patterns("__pycache__", "resources")
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
        "    label_smoothing: float = option(0.0, STEPS, at_least=0, below=1)\n"
        '    """Share of each label that all classes get."""',
        """
from typing import get_type_hints
from sklearn.base import clone
from tidybert import BertClassifier, BertTagger
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.keywords import FinetuneOptions
from tidybert.options import STEPS, changes_of
from tidybert.training.training_arguments import TrainingArguments

given = TrainingArguments(label_smoothing=0.1)
wrong = "finetune classify x --train x --out x --label-smoothing 1.5"
found = {
    "flag": flag("finetune", "label_smoothing"),
    "keyword": get_type_hints(FinetuneOptions)["label_smoothing"].__name__,
    "parameter": clone(BertTagger(label_smoothing=0.1)).get_params()["label_smoothing"],
    "documented": "label_smoothing: Share of each label" in BertClassifier.__doc__,
    "recorded": FinetuningJob("classify", "x", "y", None, given).recorded()["label_smoothing"],
    "refused": refused(wrong),
    "changes the steps": changes_of(TrainingArguments)["label_smoothing"] is STEPS,
}
""",
        {
            "flag": ["Share of each label that all classes get."],
            "keyword": "float",
            "parameter": 0.1,
            "documented": True,
            "recorded": 0.1,
            "refused": "error: --label-smoothing is 1.5; expected a fraction from 0 to below 1\n",
            "changes the steps": True,
        },
    ),
    "a task": Flag(
        "tasks/task_options.py",
        "n_best_size",
        "    fewest_words: int | None = option(None, above=0)\n"
        '    """``answer``: fewest words of an answer."""',
        """
from tidybert.finetuning.keywords import FinetuneOptions
from tidybert.tasks.registry import task_flags, unused_flags

found = {
    "flag": flag("finetune", "fewest_words"),
    "keyword": "fewest_words" in FinetuneOptions.__annotations__,
    "unused": [each for each in ("tag", "answer") if "fewest_words" in unused_flags(each)],
    "refused": refused("finetune answer x --train x --out x --fewest-words 0"),
}
""",
        {
            "flag": ["answer: fewest words of an answer."],
            "keyword": True,
            "unused": ["tag"],
            "refused": "error: --fewest-words is 0; expected a number above 0\n",
        },
    ),
    "pre-training": Flag(
        "pretraining/pretraining_arguments.py",
        "max_grad_norm",
        '    noise: Literal["none", "some"] = option("none", STEPS)\n'
        '    """Add none or some noise to gradients."""',
        """
from dataclasses import asdict
from tidybert.pretraining.pretraining_arguments import PretrainingArguments

found = {
    "flags": [flag(each, "noise") for each in ("pretrain", "train-lm")],
    "recorded": asdict(PretrainingArguments(noise="some"))["noise"],
    "refused": refused("pretrain x --data x --out x --noise much"),
}
""",
        {
            "flags": [["Add none or some noise to gradients."]] * 2,
            "recorded": "some",
            "refused": "error: --noise is much; expected none or some\n",
        },
    ),
    "serve": Flag(
        "server/settings.py",
        "max_body",
        "    idle_seconds: float = option(5.0, above=0)\n"
        '    """Close a connection after this many seconds without a request."""',
        """
from tidybert.server.settings import ServerSettings

found = {
    "flag": flag("serve", "idle_seconds"),
    "setting": ServerSettings(idle_seconds=2.0).idle_seconds,
    "refused": refused("serve x --idle-seconds 0"),
}
""",
        {
            "flag": ["Close a connection after this many seconds without a request."],
            "setting": 2.0,
            "refused": "error: --idle-seconds is 0.0; expected a number above 0\n",
        },
    ),
    "vectors": Flag(
        "inference/options.py",
        "normalize",
        '    centre: Literal["no", "yes"] = option("no")\n'
        '    """Take the mean of all vectors away, or not: no or yes."""',
        """
import inspect
from tidybert import BertVectorizer, Embedder
from tidybert.errors import UsageError

try:
    Embedder("tidybert-small", centre="maybe")
except UsageError as error:
    wrong = str(error)
found = {
    "flag": flag("embed", "centre"),
    "keyword": inspect.signature(Embedder).parameters["centre"].default,
    "parameter": BertVectorizer(centre="yes").get_params()["centre"],
    "documented": "centre: Take the mean" in Embedder.__doc__,
    "refused": [wrong, refused("embed tidybert-small x --centre maybe")],
}
""",
        {
            "flag": ["Take the mean of all vectors away, or not: no or yes."],
            "keyword": "no",
            "parameter": "yes",
            "documented": True,
            "refused": [
                "centre is maybe; expected no or yes",
                "error: --centre is maybe; expected no or yes\n",
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
    assert stub.count("    label_smoothing: float") == 2
    assert house.touched == {one.file for one in ADDED.values()}
    return found


@pytest.mark.parametrize("name", ADDED)
def test_a_flag_is_one_field(name: str, added: dict[str, Any]) -> None:
    assert added[name] == ADDED[name].expected


def test_a_metric_is_declared_and_computed_in_one_file(house: House) -> None:
    house.add(
        "metrics/text_scores.py",
        before="matthews: Annotated[",
        text='    errors: Annotated[float, Metric("fraction that is wrong")]',
    )
    house.add(
        "metrics/text_scores.py",
        before='result["per_label"] = by_label(',
        text='    result["errors"] = 1.0 - result["accuracy"]',
    )

    found = house.run("""
from typing import get_type_hints
from tidybert.metrics.metric import scale_of
from tidybert.metrics.text_scores import classification_metrics
from tidybert.tasks.answer_types import ClassMetrics
from tidybert.tasks.classification import Classification

value = classification_metrics([0, 1], [0, 0], ["a", "b"])["errors"]
typed = get_type_hints(ClassMetrics)["errors"] is float
found = [value, Classification.meanings["errors"], scale_of("errors"), typed]
""")

    assert found == [0.5, "fraction that is wrong", [0.0, 1.0], True]
    assert len(house.touched) == 1


HEAD = '''
class BertForRating(BertWithTokenHead):
    """A rating of every token."""

    parts = (HeadPart("the rating head", "rating", {"rating": "rating"}, is_fine_tuned=True),)
    pipeline_tag = "token-rating"

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.rating = Linear(config.hidden_size, 1)

'''


def test_a_head_is_added_in_three_files(house: House) -> None:
    house.add("modeling/heads.py", before="_HEADS: Final", text=HEAD)
    house.add(
        "modeling/__init__.py",
        before="from tidybert.modeling.heads import CausalLM",
        text="from tidybert.modeling.heads import BertForRating as BertForRating",
    )
    house.add("__init__.py", before='"BertForPreTraining",', text='        "BertForRating",')

    found = house.run("""
import tidybert
from tidybert.checkpoints.converting import HEADS
from tidybert.checkpoints.weights import head_names
from tidybert.modeling.heads import ARCHITECTURES

head = ARCHITECTURES["BertForRating"]
found = [head is tidybert.BertForRating, HEADS["rating"].words, head_names()["rating.weight"]]
""")

    assert found == [True, "the rating head", ["rating.weight"]]
    assert len(house.touched) == 3


KIND = """
TITLED: Final = ExampleKind(
    "titled", "texts with titles", (Part("title"), Part("text")), "the title, then the text",
    '["a title"], ["a text"]', "Titled", "A text with its title.",
)
KINDS["titled"] = TITLED
"""


def test_a_kind_of_input_is_one_object(house: House) -> None:
    pytest.importorskip("fastapi")
    house.add("checkpoints/example_kinds.py", before="def name_of(", text=KIND)

    found = house.run("""
from tidybert.checkpoints.example_kinds import KINDS
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.server.protocols.native import OBJECTS

kind = KINDS["titled"]
named = '"inputs": "titled"' in ModelMetadata("classify", inputs=kind).to_json()
read = OBJECTS[kind](title="a", text="b")
found = [named, kind.written, kind.of_json([read]), kind.of_texts(["a", "b"])]
""")

    assert found == [True, '{"title": …, "text": …}', [["a"], ["b"]], [["a"], ["b"]]]
    assert len(house.touched) == 1
