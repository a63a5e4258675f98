"""The rate at which instances are made, measured on a small corpus."""

from pathlib import Path

from tidybert.benchmark.instances import bench_instances
from tidybert.building.corpus import build_corpus
from tidybert.data.instances import PretrainingInstances
from tidybert.data.shards import TokenCorpus
from tidybert.tokenization import BertTokenizer


def test_rates_are_of_one_run(tmp_path: Path) -> None:
    tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "."])
    (tmp_path / "a.txt").write_text("\n".join(f"A {'b ' * n}. B a.\n" for n in range(40)))
    build_corpus([tmp_path / "a.txt"], tokenizer, tmp_path / "corpus", held_out=0.0)
    instances = PretrainingInstances(TokenCorpus(tmp_path / "corpus"))

    result = bench_instances(instances, batch_size=8, seconds=0.05)

    assert set(result) == {"tokens_per_second", "instances_per_second", "seek_seconds"}
    assert 5 < result["tokens_per_second"] / result["instances_per_second"] <= 128
    assert result["seek_seconds"] > 0
