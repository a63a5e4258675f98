"""Several corpora in one run: shares of tokens, resuming, each one's held-out loss, bad weights."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidybert.corpus.building import build_corpus
from tidybert.corpus.corpora import JoinedCorpora
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import DataError, TrainingError, UsageError
from tidybert.pretraining.batches.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.batches.instances import PretrainingInstances
from tidybert.pretraining.batches.stream import InstanceStream, MixedInstances, position_of
from tidybert.pretraining.plan import weighted_corpora, weighted_path
from tidybert.reporting.pretraining_curves import write_curves
from tidybert.system.reporter import Reporter
from tidybert.tokenization import BertTokenizer
from tidybert.training.interruption import TrainingInterrupted
from tidybert.training.reports import StepReport

Small = Callable[..., Any]


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """A second corpus, of longer documents and other words, built in shards of 300 tokens."""
    folder = tmp_path_factory.mktemp("books")
    text = folder / "text.txt"
    chapters = [
        "\n".join(f"we saw the {n} men near a cow {line}" for line in range(12)) for n in range(60)
    ]
    text.write_text("\n\n".join(chapters) + "\n")
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    build_corpus([text], tokenizer, folder / "books", held_out=0.2, max_shard_tokens=300)
    return folder / "books"


def mixed(*paths: Path, shares: tuple[float, ...], objective: str = "mlm+nsp") -> MixedInstances:
    corpus = JoinedCorpora([TokenCorpus(path) for path in paths])
    options = InstanceOptions(objective, max_seq_length=32)
    return MixedInstances(corpus, shares, options, MaskingOptions(), seed=1)


def test_joined_corpora_have_the_documents_of_each_in_turn(corpus: Path, books: Path) -> None:
    each = [TokenCorpus(path) for path in (corpus, books)]
    both = JoinedCorpora(each)

    assert both.num_documents == sum(one.num_documents for one in each)
    bounds, counts = both.sentence_bounds(np.arange(both.num_documents))
    ids = np.concatenate(
        both.tokens(bounds[np.cumsum(counts) - counts], bounds[np.cumsum(counts) - 1])
    )
    expected = [np.fromfile(path, "<u2") for path in sorted(corpus.glob("train-*.tokens"))]
    expected += [np.fromfile(path, "<u2") for path in sorted(books.glob("train-*.tokens"))]
    assert len(expected) > 3
    np.testing.assert_array_equal(ids, np.concatenate(expected))
    assert both.source_of(0) == each[0].source_of(0)
    assert both.source_of(each[0].num_documents) == each[1].source_of(0)


@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm", "mlm+sop"])
def test_tokens_keep_to_the_shares(corpus: Path, books: Path, objective: str) -> None:
    shares = (0.7, 0.3)
    instances = mixed(corpus, books, shares=shares, objective=objective)
    first_of_books = TokenCorpus(corpus).num_tokens

    places, after = instances.take(instances.beginning, 3000)

    lengths = instances.lengths(places)
    of_books = places.begin_a >= first_of_books
    # In every prefix, and over many epochs of both.
    ahead = np.cumsum(lengths * of_books) - shares[1] * np.cumsum(lengths)
    assert np.abs(ahead).max() <= 32
    assert after.tokens == (lengths[~of_books].sum(), lengths[of_books].sum())
    assert min(each.epoch for each in after.positions) > 2
    if objective != "mlm":
        assert ((places.begin_b >= first_of_books) == of_books).all()


def test_a_position_goes_on_where_another_stopped(corpus: Path, books: Path) -> None:
    instances = mixed(corpus, books, shares=(0.25, 0.75))
    whole, end = instances.take(instances.beginning, 500)

    position, keys = instances.beginning, []
    for count in (1, 7, 200, 92, 200):
        # As a checkpoint holds it.
        position = position_of(json.loads(json.dumps(position.flat())))
        places, position = instances.take(position, count)
        keys.append(places.key)

    np.testing.assert_array_equal(np.concatenate(keys), whole.key)
    assert position == end


def test_each_corpus_is_read_as_if_it_were_alone(corpus: Path, books: Path) -> None:
    places, _ = mixed(corpus, books, shares=(0.5, 0.5)).take(
        mixed(corpus, books, shares=(0.5, 0.5)).beginning, 400
    )
    options = InstanceOptions(max_seq_length=32)
    alone = PretrainingInstances(TokenCorpus(corpus), options, MaskingOptions(), 1)

    of_first = places[places.begin_a < TokenCorpus(corpus).num_tokens]
    expected, _ = alone.take(alone.beginning, len(of_first))

    for name, column in vars(of_first).items():
        np.testing.assert_array_equal(column, getattr(expected, name), err_msg=name)


@pytest.mark.parametrize("num_processes", [2, 3])
def test_processes_share_the_steps_of_one(corpus: Path, books: Path, num_processes: int) -> None:
    instances = mixed(corpus, books, shares=(0.6, 0.4))
    whole = InstanceStream(instances, 600, 10_000).take(instances.beginning)
    shares = [
        InstanceStream(instances, 600, 128, rank, num_processes).take(instances.beginning)
        for rank in range(num_processes)
    ]

    assert {share.position for share in shares} == {whole.position}
    assert sum(share.counts["mlm"] for share in shares) == whole.counts["mlm"]
    ids = [
        batch.rows.input_ids[start:end].tolist()
        for share in [whole, *shares]
        for batch in share.batches
        for start, end in zip(batch.rows.cu_seqlens, batch.rows.cu_seqlens[1:], strict=False)
    ]
    rows = sorted(one for one in ids if len(one) > 1)
    assert rows[::2] == rows[1::2]


def test_a_run_resumes_with_the_same_bits_and_measures_each_corpus(
    small: Small, corpus: Path, books: Path, tmp_path: Path
) -> None:
    data = [f"{corpus}:3", str(books)]
    given = {"data": data, "long_share": 0.5, "long_seq_length": 31}
    whole = small(tmp_path / "whole", **given)

    def stop(done: StepReport) -> None:
        if done.step == 7:
            raise TrainingInterrupted("stopped", 130)

    with pytest.raises(TrainingInterrupted):
        small(tmp_path / "run", **given, reporter=Reporter(step=stop))
    resumed = small(tmp_path / "run", **given, resume=True)

    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert weights[0] == weights[1]
    assert whole.metrics == resumed.metrics
    metrics = whole.metrics
    for name in ("mlm_loss", "nsp_loss", "mlm_accuracy"):
        apart = [metrics[f"{name}/shards"], metrics[f"{name}/books"]]
        assert apart[0] != apart[1]
        assert metrics[name] == pytest.approx(0.75 * apart[0] + 0.25 * apart[1])
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["mlm_loss"]))
    logged = (tmp_path / "whole" / "metrics.jsonl").read_text()
    assert '"eval_mlm_loss/books"' in logged
    picture = write_curves(tmp_path / "whole")
    assert picture is not None
    assert "books, step 12: " in picture.read_text()
    assert json.loads((tmp_path / "run" / "arguments.json").read_text())["data"] == data
    # The same corpora in other shares are another run.
    with pytest.raises(TrainingInterrupted):
        small(tmp_path / "other", **given, reporter=Reporter(step=stop))
    with pytest.raises(TrainingError, match=r"shares of 0.75, 0.25 before, shares of 0.5, 0.5 now"):
        small(tmp_path / "other", **{**given, "data": [corpus, books]}, resume=True)


def test_paths_and_weights(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("wiki", "a:b", "two", "two:2", "odd:3"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "corpus.json").write_text("{}")

    assert weighted_path("wiki") == ("wiki", 1.0)
    assert weighted_path("wiki:3") == ("wiki", 3.0)
    assert weighted_path("wiki:1e-3") == ("wiki", 0.001)
    assert weighted_path("a:b") == ("a:b", 1.0)
    assert weighted_path("a:b:2") == ("a:b", 2.0)
    assert weighted_path("odd:3") == ("odd:3", 1.0)
    assert weighted_path(Path("wiki:3")) == ("wiki:3", 1.0)
    assert weighted_path("s3://bucket/wiki") == ("s3://bucket/wiki", 1.0)
    assert weighted_path("s3://bucket/wiki:4") == ("s3://bucket/wiki", 4.0)
    assert weighted_path("nothing:there") == ("nothing:there", 1.0)
    assert weighted_path("two:2:1") == ("two:2", 1.0)
    assert weighted_path("two/:2") == ("two/", 2.0)
    with pytest.raises(UsageError, match=r"there are two and two:2; write two:2:1 for the second"):
        weighted_path("two:2")
    for weight in ("0", "-1", "nan", "inf", "many", ""):
        with pytest.raises(UsageError, match=f"the weight '{weight}' is not a number above 0"):
            weighted_path(f"wiki:{weight}")


def test_what_cannot_be_mixed_is_refused_before_the_first_step(
    small: Small, corpus: Path, books: Path, tiny_model: Path, tmp_path: Path
) -> None:
    cased = BertTokenizer.from_pretrained(tiny_model)
    cased = BertTokenizer(cased.vocabulary, do_lower_case=False)
    text = tmp_path / "text.txt"
    text.write_text("a cat\n\na dog\n\na cow\n")
    build_corpus([text], cased, tmp_path / "cased", held_out=0)

    with pytest.raises(UsageError, match="do_lower_case True and False"):
        small(tmp_path / "run", data=[corpus, tmp_path / "cased"])
    with pytest.raises(UsageError, match=r"same contents as .*give the corpus once"):
        small(tmp_path / "run", data=[corpus, f"{corpus}/:2"])
    with pytest.raises(DataError, match="not a corpus"):
        small(tmp_path / "run", data=[corpus, tmp_path / "nothing"])
    with pytest.raises(UsageError, match="name a directory"):
        small(tmp_path / "run", data=[])
    notes: list[str] = []
    weighted_corpora([corpus, books], Reporter(note=notes.append))
    assert any("different fractions" in line for line in notes)
