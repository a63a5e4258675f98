"""``tidybert tokenize``: the table and the JSON of a text and of a pair."""

import json
from pathlib import Path

from tidybert.cli.main import run as shell
from tidybert.tokenization import BertTokenizer


def test_a_pair_with_its_places(tiny_model: Path, capsys) -> None:
    text, second = "The red hen", "a [MASK] dogs"
    assert shell(["tokenize", str(tiny_model), text, second, "--json"]) == 0

    shown = json.loads(capsys.readouterr().out)
    encoding = BertTokenizer.from_pretrained(tiny_model).encode(
        text, second, special_tokens_in_text=True
    )
    rows = shown["tokens"]
    assert [row["token"] for row in rows] == encoding.tokens
    assert [row["id"] for row in rows] == encoding.input_ids
    assert [row["segment"] for row in rows] == encoding.token_type_ids
    assert [row["position"] for row in rows] == list(range(len(rows)))
    assert (shown["num_tokens"], shown["truncated"]) == (len(rows), False)
    assert rows[1] == {
        "position": 1, "token": "the", "id": encoding.input_ids[1], "segment": 0,
        "start": 0, "end": 3, "text": "The",
    }  # fmt: skip
    assert "[MASK]" in [row["text"] for row in rows if row["segment"] == 1]
    assert rows[0]["text"] is rows[-1]["text"] is None


def test_a_table_and_what_was_cut(tiny_model: Path, capsys) -> None:
    command = ["tokenize", str(tiny_model), "the red hen \x1b[2J", "--max-seq-length", "4"]
    assert shell(command) == 0

    out, err = capsys.readouterr()
    heading, _, *rows = out.splitlines()
    assert heading.split() == ["position", "token", "id", "segment", "start", "end", "text"]
    assert [row.split()[1] for row in rows] == ["[CLS]", "the", "red", "[SEP]"]
    assert "tokens were cut to --max-seq-length 4" in err
