"""``tidybert attention`` and ``tidybert similar``: tables, JSON, pictures and wrong flags."""

import json
from pathlib import Path

import pytest

from tidybert import Explainer
from tidybert.cli.main import run as shell


def test_one_matrix_and_all_heads(tiny_model: Path, tmp_path: Path, capsys) -> None:
    command = ["attention", str(tiny_model), "the red hen", "a dog"]
    expected = Explainer(tiny_model).attention("the red hen", "a dog", causal=True)

    assert shell([*command, "--causal", "--layer", "2", "--head", "1"]) == 0
    assert capsys.readouterr().out.rstrip("\n") == str(expected.head(2, 1))
    assert shell([*command, "--causal", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["probs"] == expected.probs.tolist()
    assert found["encoding"]["tokens"] == expected.tokens
    assert "query" not in found

    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    assert shell([*command, "--out", str(svg)]) == 0
    assert shell([*command, "--layer", "1", "--head", "2", "--out", str(html)]) == 0
    out, err = capsys.readouterr()
    assert f"{html}: written" in err
    assert max(map(len, out.splitlines())) <= 80
    assert svg.read_text().startswith("<svg xmlns=")
    page = html.read_text()
    for part in ("attention of layer 1, head 2", ">a dog</blockquote>", "<svg "):
        assert part in page


def test_several_texts_and_one_word(tiny_model: Path, tmp_path: Path, capsys) -> None:
    explainer, picture = Explainer(tiny_model), tmp_path / "map.svg"
    texts = ["red", "hen", "the dog"]

    assert shell(["similar", str(tiny_model), *texts, "--picture", str(picture)]) == 0
    assert capsys.readouterr().out.rstrip("\n") == str(explainer.similarities(texts))
    assert "the dog" in picture.read_text()
    assert shell(["similar", str(tiny_model), *texts, "--layer", "words", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cosines"] == explainer.similarities(texts, layer="words").cosines.tolist()
    assert shell(["similar", str(tiny_model), "red", "--top-k", "3"]) == 0
    assert capsys.readouterr().out.rstrip("\n") == str(explainer.nearest("red", top_k=3))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["attention", "a", "--layer", "1"], "give both, or neither"),
        (["attention", "a", "--layer", "3", "--head", "1"], "--layer is 3: expected 1 to 2"),
        (["attention", "a", "--out", "a.png"], "ends in .svg or .html"),
        (["similar", "red", "--layer", "1"], "no meaning for a single word"),
        (["similar", "red", "hen", "--top-k", "1"], "no meaning for several texts"),
        (["similar", "red", "hen", "--layer", "x"], "--layer x: expected 0"),
    ],
)
def test_what_is_refused(words: list[str], message: str, tiny_model: Path, capsys) -> None:
    assert shell([words[0], str(tiny_model), *words[1:]]) == 2
    assert message in capsys.readouterr().err
