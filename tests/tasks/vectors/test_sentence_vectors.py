"""embed, from its files to a RUN: what it reads, checks, measures, and that others open it."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tidybert
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.sentence_reading import read_sentence_form
from tidybert.cli.main import run as shell
from tidybert.errors import DataError, TrainingError, UsageError
from tidybert.estimators import BertVectorizer
from tidybert.files.reading import ReadReport
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.inference.embedding import Embedder
from tidybert.system.reporter import Reporter
from tidybert.tasks.task_options import VectorOptions
from tidybert.tasks.vectors.vector_examples import VectorExample, form_of, read_vectors

COLOURS = ("red", "blue", "green", "black")
ANIMALS = ("dog", "cat", "cow", "horse")
PAIRS = [(f"the {c} {a}", f"we saw a {a} {c}") for c in COLOURS for a in ANIMALS]
SCORED = [(*pair, float(n % 5)) for n, pair in enumerate(PAIRS)]
LABELLED = [(f"{first} {n}", n % 2) for n, (first, _) in enumerate(PAIRS * 2)]
QUICK: dict[str, Any] = {"max_steps": 2, "max_seq_length": 16, "train_batch_size": 8}
Write = Callable[[str, Any], Path]


def train(data: Any, tiny_model: Path, **given: Any) -> FinetunedModel[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tidybert.finetune(data, "embed", tiny_model, **{**QUICK, "dev": data, **given})


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", "anchor,positive\na,b\n", ("a", "b")),
        ("a.csv", "question,answer,negative_1,negative_2\na,b,c,\n", ("a", "b", "c")),
        ("a.tsv", "sentence1\tsentence2\nthe a\tb\n", ("the a", "b")),
        ("a.jsonl", [{"query": "a", "positive": "b", "negatives": ["c", "d"]}], tuple("abcd")),
        ("a.jsonl", [{"text": "a", "label": 3}], ("a",)),
    ],
)
def test_files(name: str, content: Any, expected: tuple[str, ...], write: Write) -> None:
    (found,) = read_vectors(write(name, content), need_label=True)

    assert found.texts == expected


def test_a_list_of_positives_is_an_example_each(write: Write) -> None:
    """As FlagEmbedding has it."""
    rows = [{"query": "a", "pos": ["b", "c"], "neg": ["d", "e"]}, {"query": "f", "pos": []}]
    path, report = write("a.jsonl", rows), ReadReport()

    found = [*read_vectors(path, need_label=True, skip_bad_rows=True, report=report)]

    assert [one.texts for one in found] == [("a", "b", "d", "e"), ("a", "c", "d", "e")]
    assert report.reasons == {"no text belongs to the first": 1}


PAIR_ROWS = [(f"we saw {n} cats", f"{n} cats were seen") for n in range(8)]


def paired(write: Write, name: str, *values: str) -> str:
    """A table of pairs with another column, whose values repeat."""
    rows = [f"{one},{two},{values[n % len(values)]}" for n, (one, two) in enumerate(PAIR_ROWS)]
    return str(write("a.csv", "\n".join([f"question1,question2,{name}", *rows, ""])))


def test_pairs_that_do_not_belong_together_are_no_pairs(write: Write, capsys: Any) -> None:
    """A label or a column that says so is refused, read as a score, or told of."""

    def told(name: str, *values: str) -> str:
        code = shell(["check", paired(write, name, *values), "embed"])
        shown = capsys.readouterr()
        return f"{code} {' '.join((shown.out + shown.err).split())}"

    refused = told("label", "entailment", "contradiction", "neutral")
    assert refused.startswith("1 ")
    assert "do not belong together: 'contradiction' 3, 'neutral' 2; leave these pairs" in refused
    assert "scores from 0 to 1" in told("is_duplicate", "1", "0")
    assert "says yes or no: 'is_match'; if it says" in told("is_match", "1", "0")
    assert "says yes or no" not in told("rank", "1", "0", "2")
    assert "says yes or no" not in told("is_match", "1")
    assert "no scores, and not read: 'pay' 4, 'ship' 4;" in told("category", "pay", "ship")


def test_objects_may_have_different_numbers_of_negatives(write: Write) -> None:
    rows = [{"anchor": "a", "positive": "b"}, {"anchor": "c", "positive": "d", "negative": "e"}]

    found = list(read_vectors(write("a.jsonl", rows), need_label=True))

    assert [one.negatives for one in found] == [(), ("e",)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text\na\n", "one text without a label; give pairs"),
        ("text,negative\na,b\n", "no column of what belongs to the first text"),
    ],
)
def test_files_that_teach_nothing(content: str, message: str, write: Write) -> None:
    with pytest.raises(DataError, match=message):
        list(read_vectors(write("a.csv", content), need_label=True))


def test_what_examples_hold() -> None:
    def forms(*given: tuple[tuple[str, ...], str | None]) -> str:
        return form_of([VectorExample(texts, label, 1) for texts, label in given])

    assert forms((("a",), "x")) == "labels"
    assert forms((("a", "b"), "0.5"), (("a", "c"), "1")) == "scores"
    assert forms((("a", "b"), "0.5"), (("a", "c"), "x")) == "pairs"
    assert forms((("a", "b", "c"), "0.5")) == "pairs"
    with pytest.raises(DataError, match="a single text, but 1 of 2 examples have two"):
        forms((("a",), "x"), (("a", "b"), "x"))


@pytest.mark.parametrize(
    ("data", "metric"), [(PAIRS, "ndcg_at_10"), (SCORED, "spearman"), (LABELLED, "map")]
)
def test_each_form_is_trained_measured_and_kept(
    data: Any, metric: str, tiny_model: Path, tmp_path: Path
) -> None:
    found = train(data, tiny_model, out=tmp_path / "run")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        measured = tidybert.evaluate(tmp_path / "run", data)
    assert found.task.metric == metric
    assert measured[metric] == pytest.approx(found.metrics[metric])
    assert measured["num_trained_on"] == len(data)
    vector = found.predict("the red cow")["vector"]
    np.testing.assert_allclose(vector, Embedder(tmp_path / "run").embed(["the red cow"])[0])
    similarity = found.predict([("the red cow", "a cat")])[0]["similarity"]
    one, other = Embedder(tmp_path / "run", normalize=True).embed(["the red cow", "a cat"])
    assert similarity == pytest.approx(float(one @ other), abs=1e-6)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_sentence_transformers_opens_a_run_and_gives_its_vectors(
    pooling: str, tiny_model: Path, tmp_path: Path
) -> None:
    package = pytest.importorskip("sentence_transformers")
    prompts = {"query_prompt": "we saw ", "document_prompt": "the "}
    train(PAIRS, tiny_model, out=tmp_path / "run", pooling=pooling, **prompts)
    texts = ["a red cow", "the black dog " * 9]

    theirs = package.SentenceTransformer(str(tmp_path / "run"), device="cpu")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("query", "document"):
            ours = Embedder(tmp_path / "run", prompt_name=name).embed(texts)
            expected = theirs.encode(texts, prompt_name=name)
            np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
        again = train(PAIRS, tmp_path / "run", max_steps=1)
    assert (again.task.pooling, again.task.query_prompt) == (pooling, "we saw ")


def test_metrics_are_those_of_their_evaluators(tiny_model: Path, tmp_path: Path) -> None:
    evaluation = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    from sentence_transformers import SentenceTransformer

    pairs = [*PAIRS, (PAIRS[0][0], PAIRS[5][1])]
    found = train(pairs, tiny_model, out=tmp_path / "run")
    scores = tidybert.evaluate(tmp_path / "run", SCORED)
    model = SentenceTransformer(str(tmp_path / "run"), device="cpu")
    texts = dict.fromkeys(positive for _, positive in pairs)
    right: dict[str, set[str]] = {}
    for anchor, positive in pairs:
        right.setdefault(anchor, set()).add(positive)

    theirs = evaluation.InformationRetrievalEvaluator(
        {anchor: anchor for anchor in right}, {text: text for text in texts}, right
    )(model)
    correlations = evaluation.EmbeddingSimilarityEvaluator(*map(list, zip(*SCORED, strict=True)))(
        model
    )

    for ours, name in (("ndcg_at_10", "ndcg@10"), ("mrr_at_10", "mrr@10"), ("map", "map@100")):
        assert found.metrics[ours] == pytest.approx(theirs[f"cosine_{name}"])
    assert found.metrics["recall_at_10"] == pytest.approx(theirs["cosine_recall@10"])
    for name in ("spearman", "pearson"):
        assert scores[name] == pytest.approx(correlations[f"{name}_cosine"], abs=1e-5)


def test_without_dev_no_text_is_on_both_sides() -> None:
    examples = [
        VectorExample((f"q{n}", f"t{n // 3}"), None, n) for n in range(60)
    ] + [VectorExample(("q0", "t19"), None, 60)]  # fmt: skip

    from tidybert.tasks.vectors.sentence_vectors import SentenceVectors

    train_part, dev = SentenceVectors.hold_out(examples, 0.2, seed=1)

    sides = [{text for one in part for text in one.texts} for part in (train_part, dev)]
    assert sides[0].isdisjoint(sides[1])
    assert dev


def test_the_data_are_checked_first(tiny_model: Path, capsys: Any, write: Write) -> None:
    rows = [
        {"anchor": "the red cow", "positive": "the red cow"},
        {"anchor": "a dog", "positive": "the cat", "negative": "a cow"},
        {"anchor": "a dog", "positive": "a cow"},
        {"anchor": "we saw " * 9, "positive": "a cat"},
    ]
    file, out = write("a.jsonl", rows), str(write("x", "").parent / "run")
    flags = ["--train", str(file), "--dev", str(file), "--max-steps", "1", "--out", out]

    assert shell(["finetune", "embed", str(tiny_model), *flags, "--max-seq-length", "12"]) == 0

    told = " ".join(capsys.readouterr().err.split())
    for part in (
        "different texts in train: 3 first, 4 second",
        "negatives: 0 to 1 an example",
        "1 training example with equal first and second texts (line 1)",
        "1 training example with a negative that is a positive of the same first text (line 2)",
        "4 dev examples of 4 with a pair that a training example has too",
        "lose a part: 1 of 4 train (25.0%)",
        "tokens of first texts, train: 5 (50%)",
    ):
        assert part in told


@pytest.mark.parametrize(
    ("data", "given", "message"),
    [
        (PAIRS, {"loss": "cosent"}, "learns from pairs of texts with scores, and these are pairs"),
        (SCORED, {"both_directions": True}, "is for loss='infonce'"),
        (PAIRS, {"scale": 0.0}, "expected a number above 0"),
        (PAIRS, {"matryoshka_dims": "8,x"}, "as in 256,128,64"),
        ([(a, "one") for a, _ in PAIRS], {}, "every training example has the same second text"),
        ([(a, b, 1.0) for a, b in PAIRS], {}, "every training score is 1"),
        (PAIRS, {"dev": SCORED}, "and the dev examples are pairs of texts with scores"),
        (LABELLED, {"dev": [("a", 1), ("b", 2)]}, "no two dev examples have one label"),
        (PAIRS, {"class_weight": "balanced"}, "has no meaning for embed"),
        (PAIRS, {"head_start": "probe"}, "can only begin at random"),
    ],
)
def test_what_cannot_be_trained(
    data: Any, given: dict[str, Any], message: str, tiny_model: Path
) -> None:
    with pytest.raises((DataError, UsageError), match=message):
        train(data, tiny_model, **given)


def test_pairs_with_scores_may_be_trained_without_them(tiny_model: Path) -> None:
    found = train(SCORED, tiny_model, loss="infonce", matryoshka_dims="8,4")

    assert (found.task.loss_name, found.task.widths) == ("infonce", (8, 4))
    assert "spearman" in found.metrics


def test_a_vectorizer_trains_on_request(tiny_model: Path, tmp_path: Path) -> None:
    given = {**QUICK, "dev": 0, "out": tmp_path / "run"}

    found = BertVectorizer(tiny_model, training=given).fit(PAIRS)

    assert (found.n_features_in_, found.settings_["model"]) == (1, str(tmp_path / "run"))
    expected = Embedder(tmp_path / "run").embed(["a red dog"])
    np.testing.assert_array_equal(found.transform(["a red dog"]), expected)
    assert not np.allclose(expected, Embedder(tiny_model).embed(["a red dog"]), atol=1e-3)
    with pytest.raises(UsageError, match="training needs out"):
        BertVectorizer(tiny_model, training={}).fit(PAIRS)


def test_a_stopped_run_goes_on_to_the_same_bits(tiny_model: Path, tmp_path: Path) -> None:
    from tidybert.finetuning.finetuning_job import FinetuningJob
    from tidybert.finetuning.run_finetuning import run_finetuning
    from tidybert.training.training_arguments import TrainingArguments

    arguments = TrainingArguments(train_batch_size=8, tokens_per_batch=40, dropout=0.2)

    class Stopped(Exception):
        pass

    def stop(done: Any) -> None:
        if done.step == 4:
            raise Stopped

    def go(
        name: str, resume: bool = False, options: VectorOptions = VectorOptions(), **given: Any
    ) -> bytes:
        job = FinetuningJob(
            "embed",
            tiny_model,
            PAIRS,
            PAIRS,
            arguments,
            task_options=options,
            out=tmp_path / name,
            resume=resume,
            max_seq_length=16,
        )
        run_finetuning(job, Reporter(**given))
        return (tmp_path / name / "model.safetensors").read_bytes()

    whole = go("whole")
    with pytest.raises(Stopped):
        go("cut", step=stop)
    # Another loss would go on from here with other steps.
    with pytest.raises(TrainingError, match=r"change changes them.*\n  scale: not given before, 5"):
        go("cut", resume=True, options=VectorOptions(scale=5.0))
    with pytest.raises(
        TrainingError, match=r"cannot change.*\n  query_prompt: not given before"
    ) as no:
        go("cut", resume=True, options=VectorOptions(query_prompt="red "))
    assert "the examples as the model reads them" not in no.value.message
    assert go("cut", resume=True) == whole


def test_the_report_shows_what_was_found(tiny_model: Path, tmp_path: Path) -> None:
    for number, data in enumerate((PAIRS, SCORED, LABELLED)):
        found = train(data, tiny_model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            measured = tidybert.evaluate(found, data, report=tmp_path / str(number), resamples=100)
        report = json.loads((tmp_path / str(number) / "report.json").read_text())
        page = (tmp_path / str(number) / "report.html").read_text()
        metric = found.task.metric
        assert report["metrics"][metric]["value"] == pytest.approx(measured[metric])
        if data is SCORED:
            # The line that fits the scores best has no mean residual.
            assert report["scores"]["mean_residual"] == pytest.approx(0, abs=1e-9)
            assert report["similarities"] is None
            continue
        shown = report["similarities"]
        assert sum(shown["right"]) == sum(shown["wrong"]) == measured["num_queries"]
        friends = shown["false_friends"]["total"] / measured["num_queries"]
        assert friends == pytest.approx(1 - measured["accuracy_at_1"])
        for first in shown["false_friends"]["shown"][:1]:
            assert first["wrong_score"] > first["right_score"]
            assert first["query"] in page
        assert "nearest wrong text" in page


def test_evaluate_searches_among_more_texts(
    tiny_model: Path, tmp_path: Path, write: Write, capsys: Any
) -> None:
    """As their evaluator does with a corpus that holds texts which answer no query."""
    evaluation = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    from sentence_transformers import SentenceTransformer

    more = [f"a {a} was near the old {b}" for a in ANIMALS for b in ANIMALS] + [PAIRS[3][1]]
    train(PAIRS, tiny_model, out=tmp_path / "run")
    rows = [{"anchor": a, "positive": b} for a, b in PAIRS]
    pairs, texts = write("pairs.jsonl", rows), write("more.txt", "\n".join(more))
    capsys.readouterr()

    command = ["evaluate", str(tmp_path / "run"), str(pairs), "--texts", str(texts), "--json"]
    assert shell(command) == 0

    told = capsys.readouterr()
    found = json.loads(told.out)
    assert "16 texts more to search among" in told.err
    assert (found["num_queries"], found["num_texts"]) == (16, 32)
    corpus = dict.fromkeys([*(b for _, b in PAIRS), *more])
    theirs = evaluation.InformationRetrievalEvaluator(
        {a: a for a, _ in PAIRS}, {text: text for text in corpus}, {a: {b} for a, b in PAIRS}
    )(SentenceTransformer(str(tmp_path / "run"), device="cpu"))
    for ours, name in (("ndcg_at_10", "ndcg@10"), ("recall_at_1", "recall@1"), ("map", "map@100")):
        assert found[ours] == pytest.approx(theirs[f"cosine_{name}"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = tidybert.evaluate(tmp_path / "run", PAIRS, texts=more)
        assert again["map"] == found["map"]
        with pytest.raises(UsageError, match="texts is for pairs of texts that belong together"):
            tidybert.evaluate(tmp_path / "run", SCORED, texts=more)


def test_a_query_never_gets_the_prompt_of_documents(tiny_model: Path, tmp_path: Path) -> None:
    train(PAIRS, tiny_model, out=tmp_path / "run", document_prompt="the ")

    form = read_sentence_form(ModelDirectory.open(tmp_path / "run"))

    assert form.prompt(name=form.query_prompt_name) == ""
    assert form.prompt(name=form.document_prompt_name) == form.prompt() == "the "
    again = train(PAIRS, tmp_path / "run", max_steps=1)
    assert (again.task.query_prompt, again.task.document_prompt) == ("", "the ")
