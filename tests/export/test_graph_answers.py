"""A directory of ONNX graphs answers as the model it was made from, without PyTorch too."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from tests.export.answering import SECONDS, TEXTS, answers, served, shown
from tests.export.conftest import INT8
from tests.relatives import saved

import tidybert
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.cli.main import run as shell
from tidybert.data.long_texts import LongTexts
from tidybert.errors import ConfigError, TidyBertError, WeightsError
from tidybert.explain import Explainer
from tidybert.export.onnx_export import export_onnx
from tidybert.inference.embedding import Embedder
from tidybert.inference.language_model import TextScorer
from tidybert.inference.loading import load
from tidybert.inference.predictor import Predictor
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.multiple_choice import MultipleChoice
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.tags.entity_scores import EntityScores
from tidybert.tasks.tags.tagging import Tagging

ROOT = Path(__file__).parents[2]
ROLES = ["no", "maybe", "yes"]
# Of a graph, the settings with which it answers otherwise.
VARIED: Final[dict[str, tuple[str, Any]]] = {
    "threshold": ("classify", Classification(ROLES, temperature=0.01, min_score=0.34)),
    "windows": ("classify", Classification(ROLES, long_texts=LongTexts("windows", 3))),
    "sets": ("classify", MultiLabelClassification(ROLES, {"no": 0.2}, temperature=0.7)),
    "warm choices": ("choose", MultipleChoice(temperature=0.3)),
    "no answers": ("answer", QuestionAnswering(max_query_length=6, doc_stride=4, no_answers=True)),
    "long tags": ("tag", Tagging(["O", "B-X", "I-X"], temperature=0.01, doc_stride=3)),
    "sure-tags": (
        "tag",
        Tagging(
            ["O", "B-X", "I-X"],
            entity_scores=EntityScores(0.2, -0.3),
            thresholds={"X": 0.1},
        ),
    ),
}
HEADS = ["classify", "regress", "choose", "answer", "tag", "embed", "pretraining", "embedding"]
# A relative, the head of its model, and sizes; Camembert's classes are those of XLM-RoBERTa.
RELATIVES: Final[dict[str, tuple[str, dict[str, int]]]] = {
    "roberta": ("ForSequenceClassification", {"num_hidden_layers": 1}),
    "xlm-roberta": ("ForTokenClassification", {"num_hidden_layers": 1}),
    "distilbert": ("ForQuestionAnswering", {"n_layers": 1, "max_position_embeddings": 96}),
    "electra": ("ForMultipleChoice", {"num_hidden_layers": 1}),
    "modernbert": ("ForMaskedLM", {"num_hidden_layers": 2, "global_attn_every_n_layers": 2}),
}
ALL: Final = (*HEADS, *VARIED, *RELATIVES)
BLOCKED = ("torch", "safetensors", "pyarrow", "sklearn", "jinja2", "scipy", "pandas")
SHEETS = ("python_calamine", "xlsxwriter")

RUN = "from tidybert.cli.main import run; sys.exit(run"

Both = Callable[[str], tuple[Path, Path]]

pytestmark = pytest.mark.filterwarnings("ignore::tidybert.errors.DataWarning")


@pytest.fixture(scope="module")
def both(made: Any, exported: Any, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """The directory of a head, and that of its graphs."""
    kept: dict[str, tuple[Path, Path]] = {}

    def make(name: str) -> tuple[Path, Path]:
        if name in kept:
            return kept[name]
        if name in VARIED:
            base, task = VARIED[name]
            folder = tmp_path_factory.mktemp("varied")
            model, graph = folder / "model", folder / "graph"
            metadata = ModelMetadata(task.name, task.label_names, 16, settings=task.settings())
            for source, copy in zip(make(base), (model, graph), strict=True):
                shutil.copytree(source, copy)
                metadata.write(copy)
            kept[name] = model, graph
        elif name in RELATIVES:
            head, sizes = RELATIVES[name]
            folder = tmp_path_factory.mktemp("relatives")
            saved(folder / "model", name, head, **sizes)
            done = export_onnx(ModelDirectory(folder / "model"), folder / "graph")
            kept[name] = folder / "model", done.directory
        else:
            kept[name] = made(name)[0].path, exported(name)[1].directory
        return kept[name]

    return make


def assert_same(found: Any, expected: Any) -> None:
    """Equal keys, texts and whole numbers, and numbers within 1e-5."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        found, expected = [*found.values()], [*expected.values()]
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            assert_same(ours, theirs)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=1e-5)
    else:
        assert found == expected


@pytest.mark.parametrize("name", ALL)
def test_answers_are_those_of_the_weights(name: str, both: Both) -> None:
    model, graph = both(name)

    assert_same(answers(graph), answers(model))


def test_nothing_of_pytorch_is_needed_to_answer(
    both: Both, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every head in Python, in the shell and over HTTP, in a process without torch and others."""
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\nthe red cat,no\na dog,yes\n")
    files = {"tsv": "text\nthe red cat\n", "jsonl": '{"text": "a dog"}\n', "txt": "a dog\n"}
    for suffix, content in files.items():
        (tmp_path / f"rows.{suffix}").write_text(content)

    def commands(at: int) -> list[list[str]]:
        classify, embed, tag, words = (
            str(both(name)[at]) for name in ("classify", "embed", "tag", "pretraining")
        )
        sure = ["predict", str(both("sure-tags")[at])]
        return [
            *(["predict", classify, str(tmp_path / f"rows.{each}")] for each in ["csv", *files]),
            [*sure, str(rows), "--json"],
            [*sure, str(rows), "--min-score", "0.5", "--json"],
            [*sure, str(rows), "--redact", "--redact-with", "[{type}_{number}]", "--json"],
            ["predict", tag, "--input", "the red cat", "--json"],
            ["predict", embed, "--input", "the red cat", "--labels", "cat,dog", "--json"],
            ["evaluate", classify, str(rows), "--json"],
            ["fill-mask", words, "the [MASK] cat", "--json"],
            ["next-sentence", words, "the cat", "a dog", "--json"],
            ["embed", embed, str(rows), "--out", str(tmp_path / f"vectors-{at}.npy")],
        ]

    names = ("tag", "sure-tags", "embed", "pretraining", "embedding")
    asked = [
        ("/v1/models/tag/predict", {"inputs": TEXTS[:2]}),
        ("/v1/models/sure-tags/predict", {"inputs": TEXTS[:2], "redact": True}),
        ("/v1/models/embed/embed", {"inputs": TEXTS, "truncate": True}),
        ("/v1/models/embedding/embed", {"inputs": TEXTS[:1]}),
        ("/v1/models/pretraining/fill-mask", {"inputs": ["the [MASK] cat"]}),
        ("/v1/models/pretraining/next-sentence", {"inputs": [{"text": "a", "text_pair": "b"}]}),
    ]
    given = {
        "models": [str(both(name)[1]) for name in ALL],
        "commands": commands(1),
        "served": {name: str(both(name)[1]) for name in names},
        "asked": asked,
    }
    block = f"import sys; sys.modules.update(dict.fromkeys({BLOCKED}))"
    code = f"{block}; import runpy; runpy.run_module('tests.export.answering', run_name='__main__')"

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, json.dumps(given)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for name, each in zip(ALL, found["answers"], strict=True):
        assert_same(each, json.loads(json.dumps(answers(both(name)[0]))))
    assert any("[X_1]" in each for each in found["commands"])
    for words, each in zip(commands(0), found["commands"], strict=True):
        assert_same([*map(read, each.splitlines())], [*map(read, shown(*words).splitlines())])
    np.testing.assert_allclose(
        *(np.load(tmp_path / f"vectors-{at}.npy") for at in (0, 1)), atol=1e-5
    )
    expected = served({name: str(both(name)[0]) for name in names}, asked)
    for (path, _), ours, theirs in zip(asked, found["served"], expected, strict=False):
        assert_same(ours, theirs)
        assert "error" not in theirs, path
    assert "the page looks into networks" in found["served"][-1]


def read(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line


def test_an_answer_does_not_depend_on_its_company(both: Both) -> None:
    for name in INT8:
        seconds = SECONDS.get(name, [None] * len(TEXTS))
        for precision in ("float32", "int8"):
            predictor = Predictor[Any](both(name)[1], precision=precision)  # type: ignore[arg-type]
            together = predictor.predict(TEXTS * 3, SECONDS.get(name) and seconds * 3)
            for text, second, each in zip(TEXTS * 3, seconds * 3, together, strict=True):
                alone = predictor.predict(text, second)
                # The number of the question.
                assert alone.pop("id", "1") == "1"
                assert each.pop("id", "1").isdigit()
                assert_same(alone, each)


@pytest.mark.parametrize("name", INT8)
def test_int8_is_another_graph_near_the_first(name: str, both: Both) -> None:
    model, graph = both(name)

    found, expected = answers(graph, precision="int8"), answers(model)

    assert found[-1] == "int8"
    ours, theirs = (numbers_in(each[:-1]) for each in (found, expected))
    assert len(ours) == len(theirs) > 0
    assert 0 < max(abs(one - other) for one, other in zip(ours, theirs, strict=True)) < 0.05


def numbers_in(value: Any) -> list[float]:
    """The numbers with a point in answers, in order: scores, logits and vectors."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list):
        return [number for each in value for number in numbers_in(each)]
    return [value] if isinstance(value, float) else []


def test_equal_fingerprints_are_equal_graphs(both: Both) -> None:
    graph = both("embed")[1]

    assert Embedder(graph).fingerprint == Embedder(graph).fingerprint
    assert Embedder(graph).fingerprint != Embedder(both("embed")[0]).fingerprint
    assert Predictor(both("sets")[1]).fingerprint != Predictor(both("classify")[1]).fingerprint


@pytest.mark.parametrize(
    ("name", "ask", "message"),
    [
        ("classify", lambda path: Predictor(path, precision="bfloat16"), "bfloat16 needs PyTorch"),
        ("regress", lambda path: Predictor(path, precision="int8"), "--to onnx --int8"),
        ("tag", lambda path: Predictor(path, device="cuda"), "answers on the CPU"),
        ("tag", Embedder, "gives logits and no vectors"),
        ("embed", lambda path: Embedder(path, layers=-2), "the last layer alone"),
        ("embedding", lambda path: Embedder(path, pooling="max"), "Dense modules are in the graph"),
        ("embedding", lambda path: Embedder(path, normalize=False), "after the pooling mean and a"),
        ("embedding", Predictor, "has no head that predicts"),
        ("tag", Explainer, "only answers"),
        ("tag", load, "only answers"),
        ("pretraining", TextScorer, "only answers"),
    ],
)
def test_what_a_graph_does_not_have_is_said(
    name: str, ask: Callable[[Path], object], message: str, both: Both
) -> None:
    with pytest.raises(TidyBertError, match=message):
        ask(both(name)[1])


def test_a_graph_is_no_start_of_a_training(
    both: Both, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\n" + "the red cat,no\na dog,yes\n" * 8)
    words = ["finetune", "classify", both("classify")[1], "--train", rows]
    words += ["--out", tmp_path / "run", "--max-seq-length", 16]

    assert shell([str(each) for each in words]) == 1
    assert "an ONNX export, which only answers" in capsys.readouterr().err


def damaged(graph: Path, copy: Path, change: Callable[[Path], object]) -> Path:
    """A copy of a directory without the hashes of tidybert.json, changed."""
    shutil.copytree(graph, copy)
    metadata = ModelMetadata.read(copy)
    change(copy)
    if metadata is not None and (copy / "tidybert.json").exists():
        metadata.write(copy)
    return copy


def without_tokenizer(path: Path) -> None:
    for name in ("vocab.txt", "tokenizer.json"):
        (path / name).unlink()


def with_opset(path: Path) -> None:
    graph = onnx.load(path / "onnx" / "model.onnx")
    graph.opset_import[0].version = 99
    onnx.save(graph, path / "onnx" / "model.onnx")


def of_another_head(path: Path) -> None:
    config = json.loads((path / "config.json").read_text())
    config["architectures"] = ["BertForQuestionAnswering"]
    (path / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda path: (path / "tidybert.json").unlink(), None, ""),
        (without_tokenizer, TidyBertError, "vocab.txt"),
        (lambda path: (path / "config.json").unlink(), ConfigError, "config.json"),
        (lambda path: (path / "onnx" / "model.onnx").write_bytes(b"no"), WeightsError, "damaged"),
        (with_opset, WeightsError, "opset 99"),
        (of_another_head, WeightsError, "BertForSequenceClassification in config.json"),
    ],
)
def test_a_damaged_directory_is_a_sentence(
    change: Callable[[Path], object],
    error: type[Exception] | None,
    message: str,
    both: Both,
    tmp_path: Path,
) -> None:
    path = damaged(both("classify")[1], tmp_path / "copy", change)

    if error is None:
        # As a directory of any other program: without a temperature and names but those in config.
        assert len(Predictor[Any](path).predict("a dog")["scores"]) == len(ROLES)
        return
    with pytest.raises(error, match=message):
        Predictor(path)


def test_weights_without_pytorch_name_the_command(both: Both) -> None:
    code = f"import sys; sys.modules.update(dict.fromkeys({BLOCKED}))"
    words = ["predict", str(both("classify")[0]), "--input", "a dog"]

    for asked, message in (
        (words, "tidybert convert"),
        (["attention", words[1], "a dog"], "this needs PyTorch, which is not installed"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", f"{code}; {RUN}({asked}))"],
            capture_output=True,
            text=True,
        )

        assert done.returncode == 2, done.stderr
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_python_measures_without_pytorch(both: Both) -> None:
    model, graph = both("classify")
    rows = [{"text": "the red cat", "label": "no"}, {"text": "a dog", "label": "yes"}]
    block = f"import sys; sys.modules.update(dict.fromkeys({BLOCKED}))"
    code = f"{block}; import json, tidybert; print(json.dumps(tidybert.evaluate({str(graph)!r}, "

    done = subprocess.run(
        [sys.executable, "-c", f"{code}{rows})))"], capture_output=True, text=True, cwd=ROOT
    )

    assert done.returncode == 0, done.stderr
    assert_same(json.loads(done.stdout), json.loads(json.dumps(tidybert.evaluate(model, rows))))


def test_files_that_need_a_package_name_it(
    both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, rows = str(both("classify")[1]), tmp_path / "rows.csv"
    rows.write_text("text,label\na dog,yes\n")
    for name in (*BLOCKED[2:], *SHEETS):
        monkeypatch.setitem(sys.modules, name, None)
    for suffix in ("parquet", "xlsx"):
        (tmp_path / f"rows.{suffix}").write_bytes(b"PAR1")
    sheet = tmp_path / "answers.xlsx"

    for words, message in (
        (["predict", graph, f"{tmp_path / 'rows.parquet'}"], "pip install pyarrow"),
        (["predict", graph, f"{tmp_path / 'rows.xlsx'}"], "pip install python-calamine"),
        (["predict", graph, f"{rows}", "--out", f"{sheet}"], "pip install XlsxWriter"),
    ):
        assert shell(words) == 2
        assert message in capsys.readouterr().err
    # No answer was computed before the sentence.
    assert [each.name for each in tmp_path.glob("*answers*")] == []
