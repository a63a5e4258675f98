"""The package benchmarks of the repository, run in this process on tiny models and toy data."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.__main__ import main
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import save_model_directory
from tidybert.configuration import BertConfig
from tidybert.modeling import BertForPreTraining
from tidybert.tokenization import BertTokenizer


@pytest.fixture
def run_script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs ``python -m benchmarks`` with arguments; returns its exit status."""

    def run(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["benchmarks", *map(str, arguments)])
        return main()

    return run


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Measures in this process; the list gets each side and its work."""
    calls: list[tuple[str, dict[str, Any]]] = []

    def run(function: Any, side: str, work: dict[str, Any], _threads: int | None) -> Any:
        calls.append((side, work))
        return {**function(side, work), "peak_mib": 7}

    monkeypatch.setattr("benchmarks.harness.script.run_apart", run)
    return calls


@pytest.fixture
def toy_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a few examples of a job of each task, for the tiny model's vocabulary."""
    words = ("the red cat", "a dog was near", "the dog", "red", "was a cat near", "cat and dog")
    texts = [f"{word} {other}" for word in words for other in ("was", "near", "old", "new")]
    endings = ("cat", "red", "the old dog", "blue")
    tags = {"cat": "B-ANIMAL", "dog": "B-ANIMAL"}

    def write(names: str, lines: list[str]) -> None:
        for name in names.split():
            path = tmp_path / "data" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines) + "\n")

    rows = [f"{text}\t{at % 2}" for at, text in enumerate(texts)]
    write("glue/SST-2/train.tsv glue/SST-2/dev.tsv", ["sentence\tlabel", *rows])
    scores = [f"g\tf\t1\t{at}\t{0.1 * (at * 7 % 11)}\t{text}\tred" for at, text in enumerate(texts)]
    write("glue/STS-B/sts-train.csv glue/STS-B/sts-dev.csv", scores)
    choices = ["\t".join(("o", text, *endings, str(at % 4))) for at, text in enumerate(texts)]
    write("choice/codah/train.tsv choice/codah/dev.tsv", choices)
    tagged = [
        "\n".join([*(f"{word} {tags.get(word, 'O')}" for word in text.split()), ""])
        for text in texts
    ]
    write("ner/conll2003/train.txt ner/conll2003/test.txt", tagged)
    article = "red O\ncat B-ANIMAL\n\n-DOCSTART- O"
    write("ner/wikigold/wikigold.conll.txt", [article] * 145)
    messages = [f"{('ham', 'spam')[at % 2]}\t{text}" for at, text in enumerate(texts)]
    write("text/sms_spam/SMSSpamCollection", messages)
    for name in ("new_wiki_v1.0", "reddit_v1.0", "amazon_reviews_v1.0", "dev-v2.0-half"):
        write(f"squad/{name}.json", [json.dumps(questions(name, texts))])
    monkeypatch.setenv("TIDYBERT_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def questions(name: str, texts: list[str]) -> dict[str, Any]:
    """As SQuAD 2.0: a question an article, every third one without an answer."""
    data = []
    for at, text in enumerate(texts):
        answers = [{"text": text.split()[-1], "answer_start": text.rindex(" ") + 1}]
        asked = {"id": f"{name} {at}", "question": "we saw", "is_impossible": at % 3 == 0}
        qas = [{**asked, "answers": answers if at % 3 else []}]
        data.append({"title": f"title {at}", "paragraphs": [{"context": text, "qas": qas}]})
    return {"version": "v2.0", "data": data}


@pytest.fixture(scope="session")
def pretrained_run(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Path,
    tiny_config: Callable[..., BertConfig],
) -> Path:
    """What ``tidybert pretrain`` writes, except for checkpoints; every parameter random."""
    run = tmp_path_factory.mktemp("runs") / "pretrained"
    torch.manual_seed(0)
    config = tiny_config(intermediate_size=64, max_position_embeddings=384)
    model = BertForPreTraining(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    metrics = {"mlm_accuracy": 0.25, "nsp_accuracy": 0.75, "perplexity": 12.5}
    save_model_directory(
        run,
        model_state=model.state_dict(),
        config=config,
        tokenizer=BertTokenizer.from_pretrained(tiny_model),
        metadata=ModelMetadata(task="pretrain", metrics=metrics),
        architecture="BertForPreTraining",
    )
    arguments = {
        "objective": "mlm+nsp",
        "recipe": "fast",
        "optimizer": "muon",
        "learning_rate": 0.002,
        "masked_lm_prob": 0.15,
        "tokens_per_step": 2048,
    }
    (run / "arguments.json").write_text(json.dumps(arguments))
    figures = {"mlm_loss": 3.0, "nsp_loss": 0.5, "learning_rate": 0.001}
    lines: list[dict[str, float]] = [
        {"step": 10, "num_tokens": 20000, **figures},
        {"step": 12, "num_tokens": 24000, **figures},
        {"step": 12, "eval_loss": 1.0, "eval_mlm_loss": 0.5, "eval_nsp_loss": 0.5},
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


@pytest.fixture
def page(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a page with marks."""

    def make(mark: str) -> Path:
        path = tmp_path / "page.md"
        path.write_text(f"before\n<!-- {mark} -->\nold\n<!-- /{mark} -->\nafter\n")
        return path

    return make
