"""Each reader of foreign files gives an answer or a TidyBertError for any mutation of its seeds."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from tests.files.test_formats import open_document, saved_dataset
from tests.fuzz.conftest import mutated_bytes
from tests.tiny_graph import CONFIG, tiny_graph, write_graph

from tidybert.checkpoints.graph_check import check_graph
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.tensor_files import read_tensors, write_shards
from tidybert.checkpoints.tensorflow_bundle import read_table, write_bundle, write_table
from tidybert.configuration import BertConfig
from tidybert.corpus.building import begin
from tidybert.corpus.documents import read_documents
from tidybert.corpus.token_shards import BuildSettings, TokenCorpus
from tidybert.data.splits import read_training_texts, write_training_texts
from tidybert.errors import WeightsError
from tidybert.files.text_files import read_examples
from tidybert.finetuning.finetuned_model import read_trials
from tidybert.inference.predictor import Predictor
from tidybert.reporting.pretraining_curves import curves_picture
from tidybert.reporting.training_history import read_training_history
from tidybert.storage.json_objects import json_checksum, plain_json
from tidybert.tasks.multiple_choice import read_choices
from tidybert.tasks.questions.question_files import read_questions
from tidybert.tasks.tags.tag_files import read_tagged
from tidybert.tokenization import BertTokenizer, Vocabulary
from tidybert.training.runs.run_checkpoints import (
    Checkpoint,
    RunIdentity,
    TrainingState,
    check_fits,
    load_optimizer,
    read_checkpoint,
    write_checkpoint,
)
from tidybert.training.runs.run_record import MetricsLog

Fuzz = Callable[..., None]
TEXTS = ["the red cat [MASK]", "", "中国 crème\u2028 \x00"]
READERS: dict[str, tuple[str, Any]] = {
    "csv": ("texts.csv", read_examples),
    "tsv": ("texts.tsv", read_examples),
    "jsonl": ("texts.jsonl", read_examples),
    "json": ("texts.json", read_examples),
    "lines": ("texts.txt", read_examples),
    "conll": ("tags.conll", read_tagged),
    "tagged_jsonl": ("tags.jsonl", read_tagged),
    "squad": ("questions.json", read_questions),
    "questions_jsonl": ("questions.jsonl", read_questions),
    "choices": ("choices.jsonl", read_choices),
}


@pytest.mark.parametrize("name", READERS)
def test_labelled_data(name: str, fuzz: Fuzz) -> None:
    file, read = READERS[name]

    def read_all(folder: Path) -> None:
        for skip in (True, False):
            need_label = name != "lines"
            list(read(folder / file, need_label=need_label, skip_bad_rows=skip))

    fuzz(file, read_all, is_data=True)


@pytest.mark.parametrize("name", ["a.xlsx", "a.ods", "a.feather", "stream.arrow", "saved"])
def test_tables(name: str, fuzz: Fuzz, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.feather

    (tmp_path / "table").mkdir()
    path = tmp_path / "table" / name
    table = pa.table({"text": ["one", "two", "three"] * 20, "label": [0, 1, 0] * 20})
    if name == "a.xlsx":
        import xlsxwriter

        with xlsxwriter.Workbook(str(path)) as book:
            for number, row in enumerate([["text", "label"], ["one", 1], ["two", "x"]]):
                book.add_worksheet() if not number else None
                book.worksheets()[0].write_row(number, 0, row)
    elif name == "a.ods":
        open_document(path, ("text", "label"), ("one", "1"), ("two", "x"))
    elif name == "saved":
        saved_dataset(path, table, {"label": {"names": ["x", "y"], "_type": "ClassLabel"}})
    elif name == "a.feather":
        pyarrow.feather.write_feather(table, str(path), compression="zstd")
    else:
        with pa.ipc.new_stream(str(path), table.schema) as stream:
            stream.write_table(table)

    fuzz(path.parent, lambda folder: list(read_examples(folder / name, need_label=True)),
         is_data=True)  # fmt: skip


def test_annotations(fuzz: Fuzz, tmp_path: Path) -> None:
    folder = tmp_path / "annotated"
    folder.mkdir()
    (folder / "a.txt").write_text("Zoë lives in Old Town\n")
    (folder / "a.ann").write_text("T1\tPER 0 3\tZoë\nT2\tLOC 13 21\tOld Town\nR1\tx Arg1:T1\n")
    spans = [{"value": {"start": 0, "end": 3, "text": "Zoë", "labels": ["PER"]}},
             {"value": {"choices": ["x"]}, "from_name": "tone"}]  # fmt: skip
    task = {"id": 1, "data": {"text": "Zoë lives"}, "annotations": [{"result": spans}]}
    (folder / "b.json").write_text(json.dumps([task, task]))
    words = "Sentence #,Word,Tag\n1,Zoë,B-PER\n,lives,O\n2,He,O\n"
    (folder / "c.csv").write_text(words)
    (folder / "d.jsonl").write_text('{"text": "Zoë lives", "label": [[0, 3, "PER"]]}\n' * 2)

    def read(given: Path) -> None:
        for name in ("a.ann", "b.json", "c.csv", "d.jsonl"):
            if (given / name).exists():
                list(read_tagged(given / name, need_label=True))

    fuzz(folder, read, is_data=True)


def test_exports(fuzz: Fuzz, tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    folder.mkdir()
    table = "text;score\r\nfür a;4,5\r\nb;3\r\n"
    (folder / "a.csv").write_bytes(table.encode("cp1252"))
    (folder / "b.csv").write_text("sep=;\n" + table)
    (folder / "c.txt").write_bytes(table.replace(";", "\t").encode("utf-16"))
    columns = {"text": {"0": "für a", "1": "b"}, "score": {"0": "4,5", "1": "3"}}
    (folder / "d.json").write_bytes(json.dumps(columns).encode("utf-16"))

    def read(given: Path) -> None:
        for path in given.iterdir():
            list(read_examples(path, need_label=True, scores=True))

    fuzz(folder, read, is_data=True)


def test_folders(fuzz: Fuzz, tmp_path: Path) -> None:
    for label in ("neg", "pos"):
        (tmp_path / "texts" / label).mkdir(parents=True)
        for number in range(3):
            (tmp_path / "texts" / label / f"{number}.txt").write_text(f"für {number}\n")

    fuzz(tmp_path / "texts", lambda folder: list(read_examples(folder, need_label=True)),
         is_data=True)  # fmt: skip


def test_parquet(fuzz: Fuzz, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "table").mkdir()
    table = pa.table({"text": ["one", "two", "three"] * 20, "label": ["a", "b", "a"] * 20})
    pq.write_table(table, tmp_path / "table" / "texts.parquet")

    def read(folder: Path) -> None:
        list(read_examples(folder / "texts.parquet", need_label=True))

    fuzz(tmp_path / "table", read, is_data=True)


def test_configuration(fuzz: Fuzz) -> None:
    def read(folder: Path) -> None:
        BertConfig.from_file(folder / "config.json")
        _ = ModelDirectory(folder).head

    fuzz("config.json", read)


def test_vocabulary(fuzz: Fuzz, tiny_run: Path) -> None:
    def read(folder: Path) -> None:
        tokenizer = BertTokenizer(Vocabulary.from_file(folder / "vocab.txt"))
        tokenizer.encode_batch(TEXTS)

    fuzz(tiny_run, read, "vocab.txt")


def test_tokenizer_files(fuzz: Fuzz, tiny_run: Path) -> None:
    def read(folder: Path) -> None:
        BertTokenizer.from_pretrained(folder).encode_batch(TEXTS)

    def without_the_other(folder: Path, chance: Random) -> None:
        if chance.random() < 0.5:
            (folder / "vocab.txt").unlink()

    names = "tokenizer.json", "tokenizer_config.json"
    fuzz(tiny_run, read, *names, mend=without_the_other)


def test_metadata_and_its_answers(fuzz: Fuzz, tiny_run: Path) -> None:
    def read(folder: Path) -> None:
        answers = Predictor(folder).predict(TEXTS)
        json.dumps(plain_json(answers), allow_nan=False)

    fuzz(tiny_run, read, "tidybert.json")


def test_arguments_of_an_estimator(fuzz: Fuzz, tiny_run: Path) -> None:
    from tidybert.estimators import BertClassifier

    def read(folder: Path) -> None:
        repr(BertClassifier.load(folder))

    fuzz(tiny_run, read, "arguments.json")


def test_weights(fuzz: Fuzz, tiny_model: Path) -> None:
    from tidybert.inference.loading import load

    def read(folder: Path) -> None:
        read_tensors(folder)
        load(folder)

    fuzz(tiny_model, read, "model.safetensors")


def test_graphs(fuzz: Fuzz, tmp_path: Path) -> None:
    """What the check takes, ONNX Runtime opens and computes, or refuses with an error."""
    import onnxruntime

    (tmp_path / "graph").mkdir()
    write_graph(tmp_path / "graph", tiny_graph())

    def read(folder: Path) -> None:
        names = check_graph(folder / "model.onnx", CONFIG)
        try:
            session = onnxruntime.InferenceSession(folder / "model.onnx")
            session.run(list(names.outputs), {"input_ids": np.array([[2, 3]])})
        except Exception as error:
            raise WeightsError(str(error)) from None

    fuzz(tmp_path / "graph", read)


def test_parts_of_weights(fuzz: Fuzz, tmp_path: Path) -> None:
    tensors = {f"tensor_{number}": torch.ones(3, number) for number in range(1, 6)}
    (tmp_path / "model").mkdir()
    write_shards(tmp_path / "model", tensors, 60)

    fuzz(tmp_path / "model", read_tensors)


def test_tensorflow_checkpoint(fuzz: Fuzz, tmp_path: Path) -> None:
    tensors = {"output_weights": torch.ones(2, 3), "output_bias": torch.ones(2)}
    tensors |= {f"bert/{number}/adam_m": torch.ones(number) for number in range(40)}
    (tmp_path / "model").mkdir()
    write_bundle(tmp_path / "model" / "model.ckpt.index", tensors, 200)
    entries = list(read_table((tmp_path / "model" / "model.ckpt.index").read_bytes(), "seed"))

    def with_right_checksums(folder: Path, chance: Random) -> None:
        """In half of the cases one value of the index is another one."""
        if chance.random() < 0.5:
            changed = entries.copy()
            number = chance.randrange(len(entries))
            changed[number] = entries[number][0], mutated_bytes(entries[number][1], chance)
            path = folder / "model.ckpt.index"
            if path.is_file():
                path.write_bytes(write_table(changed))

    fuzz(tmp_path / "model", read_tensors, "model.ckpt.index", mend=with_right_checksums)


def test_corpus(fuzz: Fuzz, write_corpus: Callable[..., Path], tmp_path: Path) -> None:
    documents = [[[5, 6, 7], [8, 9]], [[10, 11]], [[12], [13, 14, 15]]]
    corpus = write_corpus(tmp_path / "corpus", documents, documents[:1])

    def read(folder: Path) -> None:
        for part in ("train", "held-out"):
            found = TokenCorpus(folder, part)  # type: ignore[arg-type]
            found.verify()
            found.tokenizer()
            bounds, _ = found.sentence_bounds(np.arange(found.num_documents))
            found.tokens(bounds[:-1], bounds[1:])
            for document in range(found.num_documents):
                found.source_of(document)

    fuzz(corpus, read)


def sealed_again(name: str) -> Callable[[Path, Random], None]:
    """Gives half of the changed states the checksum of what they say."""

    def mend(folder: Path, chance: Random) -> None:
        path = folder / name
        try:
            content = json.loads(path.read_bytes()) if path.is_file() else None
            if isinstance(content, dict) and chance.random() < 0.5:
                content.pop("checksum", None)
                content["checksum"] = json_checksum(content)
                path.write_text(json.dumps(content))
        except (ValueError, RecursionError):
            return

    return mend


def test_resume_state(fuzz: Fuzz, tmp_path: Path) -> None:
    run = tmp_path / "run"
    progress = {"position": [0, 0, 3], "seconds": 0.5}
    course = RunIdentity({"seed": 3, "precision": "auto"}, {"data": "a", "weights": "b"})
    weights = {"weight": torch.ones(3, 2)}
    moments = {"weight/exp_avg": torch.ones(3, 2), "weight/step": torch.tensor(2.0)}
    state = TrainingState(
        course.to_dict(), step=2, best_step=1, best_metrics={"f1": 0.5}, progress=progress
    )
    step = write_checkpoint(run, Checkpoint(state, weights, moments), 1)
    model = torch.nn.Linear(2, 3, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())

    def read(folder: Path) -> None:
        found, *_ = read_checkpoint(folder, course, progress)
        if found is not None:
            check_fits(model, found)
            load_optimizer(model, optimizer, found.moments)
            model.load_state_dict(found.weights)

    names = [str(path.relative_to(run)) for path in sorted(step.iterdir())]
    fuzz(run, read, *names, names[-1], names[-1], mend=sealed_again(names[-1]))


def test_metrics(fuzz: Fuzz) -> None:
    def read(folder: Path) -> None:
        history = read_training_history(folder, ("loss", "learning_rate", "num_tokens"))
        if history is not None:
            curves_picture(history)
        MetricsLog(folder).rewind(2)

    fuzz("metrics.jsonl", read)


def test_trials(fuzz: Fuzz) -> None:
    def read(folder: Path) -> None:
        read_trials(folder / "trials.json", {"seed": 3, "model": "mini"})

    fuzz("trials.json", read)


def test_documents(fuzz: Fuzz, tmp_path: Path) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    text = "The first line of a document.\nIt goes on.\n\nThe next document.\n"
    (documents / "a.txt").write_text(text)
    (documents / "b.txt.gz").write_bytes(gzip.compress(text.encode() * 20, mtime=0))
    (documents / "c.jsonl").write_text('{"text": "A document."}\n{"text": "Another one."}\n')

    def read(folder: Path) -> None:
        for path in sorted(folder.iterdir()):
            list(read_documents([path]))

    fuzz(documents, read, is_data=True)


def test_progress_of_a_build(fuzz: Fuzz, tmp_path: Path) -> None:
    settings = BuildSettings(files=[("a.txt", 9, "0")], vocabulary={}, held_out=0.1)
    begin(tmp_path / "corpus", settings)

    def read(folder: Path) -> None:
        begin(folder, settings)

    fuzz(tmp_path / "corpus", read, "progress.json", mend=sealed_again("progress.json"))


def test_hashes_of_training_texts(fuzz: Fuzz, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    write_training_texts(tmp_path / "run", np.arange(20, dtype=np.uint64))

    fuzz(tmp_path / "run", read_training_texts)
