"""A MODEL as ONNX: ONNX Runtime's outputs are ours, and the files are those that others expect."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from msgspec.structs import replace
from tests.export.padded_batches import assert_equal, expected_outputs, padded_batch
from tokenizers import Tokenizer
from torch import Tensor

from benchmarks.speed.light import write_head
from tidybert.checkpoints.graph_check import check_graph
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.cli.main import run as shell
from tidybert.errors import ConfigError, TruncationWarning, UsageError, WeightsError
from tidybert.export import onnx_export
from tidybert.export.onnx_export import export_onnx
from tidybert.inference.embedding import Embedder
from tidybert.inference.predictor import Predictor

EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx_without_tidybert.py"
NAMES = ("classify", "choose", "answer", "tag", "pretraining", "embedding")
OUTPUTS = {
    "answer": ["start_logits", "end_logits"],
    "pretraining": ["logits", "seq_relationship_logits"],
    "embedding": ["last_hidden_state", "sentence_embedding"],
}
TEXTS = ["the red cat", "a dog", "we saw the old hen near a new blue cow under the white dog"]
Export = Callable[[str], tuple[Any, onnx_export.Exported]]


def outputs_of(path: Path, *tensors: Tensor) -> dict[str, Tensor]:
    session = onnxruntime.InferenceSession(path)
    names = ("input_ids", "attention_mask", "token_type_ids")
    given = {name: each.numpy() for name, each in zip(names, tensors, strict=True)}
    found = [each.name for each in session.get_outputs()]
    values = map(torch.from_numpy, session.run(found, given))
    return dict(zip(found, values, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_onnx_runtime_has_our_numbers(name: str, exported: Export) -> None:
    model, done = exported(name)

    for size, length in ((1, 1), (3, 7), (2, 32)):
        tensors = padded_batch(model.config, size, length)
        if name == "choose":
            tensors = tuple(each.repeat(2, 1, 1) for each in tensors)
        found = outputs_of(done.directory / "onnx" / "model.onnx", *tensors)

        assert list(found) == OUTPUTS.get(name, ["logits"]) == list(done.outputs)
        found.pop("sentence_embedding", None)
        assert_equal(found, expected_outputs(model, *tensors), tensors[1])
    assert done.differences["onnx/model.onnx"] < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_the_graph_has_free_axes_and_whole_tensors(name: str, exported: Export) -> None:
    graph = onnx.load(exported(name)[1].directory / "onnx" / "model.onnx")

    axes = ["batch_size", "sequence_length"]
    if name == "choose":
        axes.insert(1, "num_choices")
    assert [(each.domain, each.version) for each in graph.opset_import] == [("", 20)]
    for each in graph.graph.input:
        assert [axis.dim_param for axis in each.type.tensor_type.shape.dim] == axes
        assert each.type.tensor_type.elem_type == onnx.TensorProto.INT64
    onnx.checker.check_model(graph, full_check=True)


def test_a_sentence_has_the_vector_of_its_directory(exported: Export, made: Any) -> None:
    """The tokens of tokenizer.json, the graph, and nothing of ours between them."""
    _, done = exported("embedding")
    with pytest.warns(TruncationWarning):
        expected = Embedder(made("embedding")[0].path).embed(TEXTS)

    found = run_example(done.directory, *TEXTS)

    assert expected.shape == (3, 12)
    np.testing.assert_allclose([each["answer"] for each in found], expected, atol=1e-5)


def test_the_example_gives_the_labels_and_scores_of_predict(exported: Export, made: Any) -> None:
    _, done = exported("classify")
    expected = Predictor(made("classify")[0].path).predict(TEXTS)

    found = run_example(done.directory, *TEXTS)

    assert [each["answer"] for each in found] == [each["label"] for each in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours["scores"] == pytest.approx(theirs["scores"], abs=1e-5)


def test_the_example_gives_each_text_its_labels(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced, export = [], torch.export.export
    monkeypatch.setattr(torch.export, "export", lambda *a, **k: traced.append(k) or export(*a, **k))
    run, graph = write_head(str(tiny_model), "multi-label", tmp_path)
    # A size read as a number would fail the first way to trace, and a second one is slower.
    assert len(traced) == 1
    expected = Predictor[Any](run).predict(TEXTS)

    found = run_example(graph, *TEXTS)

    assert [each["answer"] for each in found] == [each["labels"] for each in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours["scores"] == pytest.approx(theirs["scores"], abs=1e-5)


def run_example(*words: str | Path) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-S", "-c", WITHOUT_TIDYBERT, *map(str, words)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


# As the command, but any import of tidybert or torch fails.
WITHOUT_TIDYBERT = f"""
import runpy, sys
sys.path += {[each for each in sys.path if each]!r}
sys.modules |= {{"tidybert": None, "torch": None}}
runpy.run_path({str(EXAMPLE)!r}, run_name="__main__")
"""


def test_the_example_is_short() -> None:
    code = EXAMPLE.read_text("utf-8").split('"""')[2]

    assert len([line for line in code.splitlines() if line.strip()]) <= 36


def test_a_package_that_is_not_installed_is_named(tiny_run: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['onnx'] = None; from tidybert.cli.main import run; "
        f"sys.exit(run(['convert', {str(tiny_run)!r}, {str(tmp_path / 'onnx')!r}, '--to', 'onnx']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "ONNX needs the package onnx: pip install 'tidybert[export]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_files_beside_the_graph_are_those_that_others_read(exported: Export) -> None:
    directory = exported("classify")[1].directory

    config = json.loads((directory / "config.json").read_text())
    assert sorted(str(path.relative_to(directory)) for path in directory.rglob("*.*")) == [
        "config.json",
        "onnx/model.onnx",
        "onnx/model_quantized.onnx",
        "tidybert.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]
    # The graph computes the mean, which transformers.js would not know by its name.
    assert config["model_type"] == "bert"
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": "no", "1": "maybe", "2": "yes"}
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 16
    assert Tokenizer.from_file(str(directory / "tokenizer.json")).encode("red cat").tokens == [
        "[CLS]",
        "red",
        "cat",
        "[SEP]",
    ]


def test_an_export_says_how_a_tagger_reads(exported: Export) -> None:
    _, done = exported("tag")

    found = json.loads((done.directory / "tidybert.json").read_text())
    assert found["settings"]["running_text"] is True


def test_an_embedding_model_has_the_layout_of_sentence_transformers(exported: Export) -> None:
    _, done = exported("embedding")

    modules = json.loads((done.directory / "modules.json").read_text())
    assert [each["path"] for each in modules] == ["", "1_Pooling", "2_Dense", "3_Normalize"]
    assert (done.directory / "2_Dense" / "model.safetensors").is_file()
    settings = json.loads((done.directory / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 11
    assert done.lost == (
        "the pooler, which no output reads",
        "in the graph the prompt 'query': put it before texts yourself",
    )


def test_int8_is_near_and_multiplies_in_int8(exported: Export) -> None:
    model, done = exported("classify")
    path = done.directory / "onnx" / "model_quantized.onnx"
    tensors = padded_batch(model.config, 4, 9)

    found = outputs_of(path, *tensors)["logits"]

    difference = (found - expected_outputs(model, *tensors)["logits"]).abs().max()
    assert 1e-6 < difference < 0.05
    assert 1e-6 < done.differences["onnx/model_quantized.onnx"] < 0.05
    kinds = [each.op_type for each in onnx.load(path).graph.node]
    # Those of the layer: the few outputs of a head stay exact.
    assert kinds.count("MatMulInteger") == 4
    assert sorted(done.sizes) == ["onnx/model.onnx", "onnx/model_quantized.onnx"]


def test_an_answer_in_int8_does_not_depend_on_its_company(exported: Export) -> None:
    """The states of one text are far larger than those of the others."""
    model, done = exported("classify")
    path = done.directory / "onnx" / "model_quantized.onnx"
    tensors = padded_batch(model.config, 4, 9)
    tensors[0][1:] = tensors[0][1, 0]

    together = outputs_of(path, *tensors)["logits"]

    alone = [outputs_of(path, *(each[at : at + 1] for each in tensors)) for at in range(4)]
    torch.testing.assert_close(
        together, torch.cat([each["logits"] for each in alone]), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_check_takes_what_the_export_writes(name: str, exported: Export) -> None:
    model, done = exported(name)

    for file in done.sizes:
        inputs, outputs = check_graph(done.directory / file, model.config)
        assert inputs == ("input_ids", "attention_mask", "token_type_ids")
        assert outputs == done.outputs


def test_the_hashes_cover_the_graphs(exported: Export, tmp_path: Path) -> None:
    folder = shutil.copytree(exported("classify")[1].directory, tmp_path / "copy")
    metadata = ModelMetadata.read(folder)
    assert metadata is not None
    metadata.verify(folder)
    swapped = folder / "onnx" / "model_quantized.onnx"

    swapped.write_bytes((folder / "onnx" / "model.onnx").read_bytes())

    with pytest.raises(WeightsError, match=r"changed since .*onnx/model_quantized.onnx"):
        metadata.verify(folder)
    files = {**metadata.files, "onnx/model_quantized.onnx": metadata.files["onnx/model.onnx"]}
    with pytest.raises(WeightsError, match="the file was edited"):
        replace(metadata, files=files).verify(folder)


def test_a_language_model_is_refused(served: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a language model"):
        export_onnx(ModelDirectory(served["poem"]), tmp_path / "out")


def test_what_is_there_is_not_replaced(made: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is there already; name a new directory"):
        export_onnx(made("tag")[0], tmp_path)


def test_a_missing_package_is_named(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)

    with pytest.raises(UsageError, match=r"pip install 'tidybert\[export\]'"):
        export_onnx(made("tag")[0], tmp_path / "out")


def test_more_than_one_file_can_hold_is_refused(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_export, "_MOST_BYTES", 1000)

    with pytest.raises(WeightsError, match="bytes of weights; an ONNX file has room for 1,000"):
        export_onnx(made("tag")[0], tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_command_tells_sizes_and_scores(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], toy_examples: Any
) -> None:
    dev, out = tmp_path / "dev.jsonl", tmp_path / "out"
    rows = [{"text": each.text, "label": each.label} for each in toy_examples(40, seed=2)]
    dev.write_text("".join(json.dumps(row) + "\n" for row in rows))

    words = ["convert", tiny_run, out, "--to", "onnx", "--int8", "--dev", dev, "--json"]
    assert shell([str(each) for each in words]) == 0

    shown = json.loads(capsys.readouterr().out)
    assert shown["architecture"] == "BertForSequenceClassification"
    assert set(shown["scores"]) == {str(tiny_run), *shown["sizes"]}
    own, *others = shown["scores"].values()
    assert own > 0.8
    assert others[0] == own
    assert abs(others[1] - own) <= 0.1
    assert {name: (out / name).stat().st_size for name in shown["sizes"]} == shown["sizes"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "huggingface", "--int8"], "--int8 has no meaning with --to huggingface"),
        (["--to", "tensorflow", "--dev", "x"], "--dev has no meaning with --to tensorflow"),
        (["--to", "onnx", "--dtype", "float16"], "--dtype has no meaning with --to onnx"),
        (["--to", "onxx"], "'onxx'; did you mean 'onnx'?"),
    ],
)
def test_a_flag_of_another_form_is_wrong_usage(
    words: list[str],
    message: str,
    tiny_run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert shell(["convert", str(tiny_run), str(tmp_path / "out"), *words]) == 2
    assert message in capsys.readouterr().err
