"""Commands over a BERT whose tokenizer.json is of another kind: its own names, places and rooms."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tests.tokenization.test_library_tokenizer import WORDS, trained

from tidybert.cli.main import run as shell
from tidybert.data.long_texts import long_features
from tidybert.errors import DataError, UsageError
from tidybert.explain import Explainer
from tidybert.files.text_examples import TextExample
from tidybert.inference.pretraining_heads import MaskFiller
from tidybert.page.page_model import PageModel
from tidybert.page.views import gap
from tidybert.pretraining.batches.instances import describe_texts
from tidybert.pretraining.batches.masking import MaskingOptions
from tidybert.server.protocols.pipeline_routes import joined_pieces
from tidybert.tasks.questions.question_features import question_features
from tidybert.tasks.questions.question_files import QuestionExample
from tidybert.tasks.tags.tag_files import TaggedExample, untagged
from tidybert.tasks.tags.tagging import tagged_features
from tidybert.tokenization import BertTokenizer

LONG = "the quick brown fox and the covid vaccine tower in café naïve " * 4


@pytest.fixture(scope="module", params=["unigram", "byte-level"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked-LM of transformers over a small tokenizer with <s>, </s> and <mask>."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    trained(request.param).save(str(folder / "tokenizer.json"))
    names = {"cls": "s", "sep": "/s", "pad": "pad", "unk": "unk", "mask": "mask"}
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        **{f"{role}_token": f"<{name}>" for role, name in names.items()},
    )
    theirs.save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=len(theirs),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=300,
        initializer_range=0.4,
    )
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def tokenizer(model: Path) -> BertTokenizer:
    return BertTokenizer.from_pretrained(model)


def test_fill_mask_knows_its_mask(model: Path, capsys: Any) -> None:
    text = "the quick <mask> fox"
    theirs = transformers.pipeline(
        "fill-mask",
        model=transformers.BertForMaskedLM.from_pretrained(model),
        tokenizer=transformers.AutoTokenizer.from_pretrained(model),
    )
    filler = MaskFiller(model, device="cpu")

    words = filler.fill([text], top_k=30)[0]["masks"][0]["words"]

    expected = theirs(text, top_k=30)
    ids = filler.tokenizer.convert_tokens_to_ids([each["word"] for each in words])
    assert ids == [each["token"] for each in expected]
    assert [each["probability"] for each in words] == pytest.approx(
        [each["score"] for each in expected], abs=1e-5
    )
    for each in words:
        assert not {"▁", "Ġ"} & {*each["text"]}
        gap_before = "" if filler.tokenizer.continues(each["word"]) else " "
        spelled = filler.tokenizer.spelled(each["word"])
        assert each["text"] == f"the quick{gap_before}{spelled} fox"
    among = [word for word in WORDS if len(filler.tokenizer.pieces_of_word(word)) == 1]
    (found,) = filler.fill([text], among=among[:2])
    expected = {f"the quick {word} fox" for word in among[:2]}
    assert {each["text"] for each in found["masks"][0]["words"]} == expected
    with pytest.raises(DataError, match="has no <mask>: write it, spelled so"):
        filler.fill(["the [MASK] fox"])
    with pytest.raises(UsageError, match="a <mask> hides one"):
        filler.fill([text], among=["the quick"])
    assert shell(["fill-mask", str(model), "<mask> fox <mask>"]) == 0
    assert "<mask> 2 of 2" in capsys.readouterr().out


def test_what_is_explained_has_its_names(model: Path) -> None:
    explainer = Explainer(model)

    cloze = explainer.cloze("the quick fox", hide=(4, 9))

    assert [word.text for word in cloze.words] == ["the", "quick", "fox"]
    assert "<mask>" in cloze.tokens
    assert cloze.masks[0].truth != "<unk>"
    assert explainer.attention("the fox").table().headings[5] == "<s>, </s>"
    assert gap(PageModel(str(model), str(model)), "the quick fox", 1)["mask"] == "<mask>"
    with pytest.raises(DataError, match="has no <mask>: write it, spelled so"):
        explainer.cloze("the fox")
    with pytest.raises(DataError, match="there are 0 <mask>: write one"):
        explainer.attributions("the fox")


def test_windows_beside_a_question_are_those_of_transformers(
    model: Path, tokenizer: BertTokenizer
) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(model)
    question = "the quick fox"
    kept, special, step = len(tokenizer.tokenize(question)), tokenizer.layout.num_special(2), 7
    room = 40 - kept - special
    example = QuestionExample("1", question, LONG, (("brown fox", LONG.index("brown")),), 1)

    found = question_features([example], tokenizer, 40, 20, step)

    expected = theirs(
        question, LONG, truncation="only_second", max_length=40, stride=room - step,
        return_overflowing_tokens=True, return_offsets_mapping=True,
    )  # fmt: skip
    assert special == 4
    assert [each.input_ids.tolist() for each in found] == expected["input_ids"]
    whole = np.array(tokenizer.encode(LONG, add_special_tokens=False).input_ids)
    for each in found:
        window = each.place
        rows = slice(window.first_row, window.first_row + window.end - window.begin)
        assert each.input_ids[rows].tolist() == whole[window.begin : window.end].tolist()
        assert each.num_tokens == kept + len(whole) + special
    with pytest.raises(UsageError, match=r"and 4 special tokens: give at least 25"):
        question_features([example], tokenizer, 24, 20, None)


@pytest.mark.parametrize("mode", ["windows", "head-tail"])
@pytest.mark.parametrize("pair", [None, LONG])
def test_long_texts_fill_their_room(tokenizer: BertTokenizer, mode: str, pair: str | None) -> None:
    example = TextExample(LONG, pair, None, 1)
    if pair and mode == "head-tail":
        return

    found = long_features([example], tokenizer, 30, mode)

    assert max(len(each.input_ids) for each in found) == 30
    with pytest.raises(UsageError, match=f"room for {25 if pair else 28} tokens"):
        long_features([example], tokenizer, 30, "windows", 29)


def test_tags_and_segments_are_at_their_rows(model: Path, tokenizer: BertTokenizer) -> None:
    words = ["the", "quick", "fox", "in", "café"]
    listed = TaggedExample(words, None, 1)
    for running_text, space in ((True, " "), (False, "")):
        (found,) = tagged_features([listed], tokenizer, 64, None, running_text=running_text)
        pieces = [tokenizer.encode(space + word, add_special_tokens=False) for word in words]
        assert found.input_ids[1:-1].tolist() == [id for one in pieces for id in one.input_ids]
        firsts = [one.input_ids[0] for one in pieces]
        assert found.input_ids[found.place.rows].tolist() == firsts
    text = "café's (fox)"
    (found,) = tagged_features([untagged(text, 1)], tokenizer, 64, None)
    encoding = tokenizer.encode(text)
    assert found.input_ids.tolist() == encoding.input_ids
    begins = {text[encoding.offset_mapping[row][0]] for row in found.place.rows}
    assert begins == {*"c's(f)"}

    shown = describe_texts(
        ["the quick fox", "brown fox"], tokenizer, MaskingOptions(whole_word=True),
        max_seq_length=64, seed=1, epoch=0, index=0,
    )  # fmt: skip
    counts = [len(tokenizer.tokenize(each)) for each in ("the quick fox", "brown fox")]
    assert [each["num_tokens"] for each in shown["segments"]] == counts
    assert all("</s>" not in each["text"] for each in shown["segments"])
    assert joined_pieces(tokenizer, " the fox ") == "the fox"
