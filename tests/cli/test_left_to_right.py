"""``train-lm``, ``generate`` and ``score``, on one model that has a poem by heart."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tidybert.cli.main import run as shell

ENGLISH = (
    "before my bed the moonlight lies so bright, i took it for a frost upon the floor. i lift my "
    "head and see the moon tonight, i bow my head and think of home once more."
)


CHINESE = "床前明月光，疑是地上霜。举头望明月，低头思故乡。"


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RUN that has the poem by heart, not to be written to."""
    folder = tmp_path_factory.mktemp("poem")
    (folder / "poem.txt").write_text(f"{CHINESE}\n\n{ENGLISH}\n", encoding="utf-8")
    run = folder / "run"
    sizes = ["--tokens-per-step", "128", "--eval-tokens", "128", "--max-seq-length", "64"]
    words = ["train-lm", str(folder / "poem.txt"), "--out", str(run), "--max-steps", "100"]
    assert shell([*words, *sizes, "--device", "cpu"]) == 0
    return run


def test_the_poem_is_said_word_for_word(learnt: Path, capsys: Any) -> None:
    assert shell(["generate", str(learnt), "床前"]) == 0
    assert capsys.readouterr().out == f"{CHINESE}\n"


def test_a_text_comes_as_the_model_says_it(learnt: Path, capsys: Any) -> None:
    assert shell(["generate", str(learnt), "Before my"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{ENGLISH}\n"
    assert "the model ended the text: [EOS]" in err

    assert shell(["generate", str(learnt), "Before my", "--max-tokens", "2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["text"] == "before my bed the"
    assert [each["token"] for each in answer["tokens"]] == ["bed", "the"]
    assert answer["stopped"] == "max_tokens"

    drawn = []
    for seed in ("1", "1", "2"):
        options = ["--temperature", "8", "--top-p", "0.9", "--top-k", "40", "--seed", seed]
        assert shell(["generate", str(learnt), *options]) == 0
        drawn.append(capsys.readouterr().out)
    assert drawn[0] == drawn[1] != drawn[2]


def test_each_token_has_its_probability(learnt: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "texts.txt").write_text(f"{ENGLISH}\nmy bed head\n")
    assert shell(["score", str(learnt), str(tmp_path / "texts.txt"), "--json"]) == 0
    out, err = capsys.readouterr()
    right, wrong = map(json.loads, out.splitlines())
    assert right["tokens"][2]["token"] == "bed"
    assert right["tokens"][2]["probability"] > 0.9
    assert right["perplexity"] < 1.5 < 20 < wrong["perplexity"]
    answers = (right, wrong)
    total = sum(each["num_tokens"] * math.log(each["perplexity"]) for each in answers)
    num_tokens = sum(each["num_tokens"] for each in answers)
    mean = math.exp(total / num_tokens)
    assert f"all 2 texts: perplexity {mean:,.2f}, {num_tokens} tokens" in err

    assert shell(["score", "tidybert-small", str(tmp_path / "texts.txt")]) == 0
    out, err = capsys.readouterr()
    assert out.count("\npseudo-perplexity ") == 2
    assert "all 2 texts: pseudo-perplexity" in err


def test_a_run_shows_what_it_is_and_is_no_encoder(
    learnt: Path, tmp_path: Path, capsys: Any
) -> None:
    assert shell(["info", str(learnt), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["task"], shown["heads"]) == ("train-lm", ["CausalLM"])
    assert "next tokens" in (learnt / "curves.svg").read_text()
    assert "held-out text" not in (learnt / "curves.svg").read_text()
    csv = tmp_path / "data.csv"
    csv.write_text("text,label\n" + "".join(f"text {n},{'ab'[n % 2]}\n" for n in range(20)))
    for command in (
        ["predict", str(learnt), str(csv)],
        ["embed", str(learnt), str(csv), "--out", str(tmp_path / "v.npy")],
        ["extend-vocab", str(learnt), str(csv), "--add", "1", "--out", str(tmp_path / "e")],
        ["fill-mask", str(learnt), "a [MASK]"],
        ["finetune", "classify", str(learnt), "--train", str(csv), "--out", str(tmp_path / "r")],
    ):
        assert shell(command) == 1, command
        error = capsys.readouterr().err
        assert "is a language model" in error, error


def test_a_run_is_repeated_and_goes_on(learnt: Path, tmp_path: Path, capsys: Any) -> None:
    again = ["--config", str(learnt / "arguments.json"), "--out", str(tmp_path / "again")]
    assert shell(["train-lm", *again, "--max-steps", "1"]) == 0
    assert shell(["train-lm", *again, "--resume"]) == 0
    assert "there is nothing to resume" in capsys.readouterr().err
    assert shell(["pretrain", *again]) == 2
    assert "these are the arguments of train-lm, not of pretrain" in capsys.readouterr().err
    text = str(tmp_path / "text.txt")
    Path(text).write_text("a b\n")
    assert (
        shell(
            [
                "train-lm",
                text,
                "--out",
                str(tmp_path / "x"),
                "--vocab",
                "tidybert-small",
                "--max-steps",
                "1",
                "--tokens-per-step",
                "128",
                "--positions",
                "learned",
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert shell(["generate", str(tmp_path / "x"), "the", "--max-tokens", "1"]) == 0
