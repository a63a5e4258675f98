"""Added tokens and tokenizers of other kinds, beside transformers."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tidybert.errors import VocabularyError
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.tokenizer import LibraryTokenizer
from tidybert.tokenization.vocabulary import SPECIAL_TOKENS

# make test-tokens CASES=2000 runs more of them.
NUM_CASES = int(os.environ.get("TIDYBERT_TOKEN_CASES", "40"))
WORDS = [
    "the", "quick", "brown", "fox", "covid", "vaccine", "naïve", "café", "Straße", "東京", "tower",
    "un", "##able", "##s", "##id", "##19", "1", "9",
]  # fmt: skip
LETTERS = "abcdefghijklmnopqrstuvwxyz"
MARKS = "[](){}<>_-.,é東京0123456789"
VOCABULARY = list(
    dict.fromkeys([*SPECIAL_TOKENS, *LETTERS, *(f"##{each}" for each in LETTERS), *MARKS, *WORDS])
)
TEXTS = [
    "The quick brown fox, covid19 and COVID19 in café_au_lait",
    "newdomainword [E1] here [E1]here  [E1]",
    "Ünïcode STRASSE straße 東京tower \u200b x\u0301 ﬁne",
    "",
    "  two  spaces\tand a tab\n",
    "🙂 emoji🙂[PAD] and <s> plain </s>",
]

added_tokens = st.builds(
    AddedToken,
    st.one_of(
        st.sampled_from(["covid19", "COVID19", "[E1]", "newdomainword", "au_lait", "é", "東京"]),
        st.text("abcE1[]é _", min_size=1, max_size=6).filter(lambda each: each.strip() == each),
    ),
    single_word=st.booleans(),
    lstrip=st.booleans(),
    rstrip=st.booleans(),
    normalized=st.booleans(),
    special=st.booleans(),
)


def theirs_with(added: list[AddedToken], folder: Path, do_lower_case: bool) -> Any:
    """transformers' tokenizer with added tokens, saved in its form."""
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    theirs = transformers.BertTokenizer.from_pretrained(folder, do_lower_case=do_lower_case)
    theirs.add_tokens(added)
    (folder / "vocab.txt").unlink()
    theirs.save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


def assert_equal(ours: BertTokenizer, theirs: Any, text: str) -> None:
    found = ours.encode(text)
    expected = theirs(text, return_offsets_mapping=True)
    assert found.input_ids == expected["input_ids"]
    batch = ours.encode_batch([text, "the fox", text])
    assert [each.tolist() for each in batch] == [
        found.input_ids, ours.encode("the fox").input_ids, found.input_ids,
    ]  # fmt: skip
    for (start, end), (first, last) in zip(
        found.offset_mapping, expected["offset_mapping"], strict=True
    ):
        assert text[start:end].strip() == text[first:last].strip()


@given(
    added=st.lists(added_tokens, min_size=1, max_size=5, unique_by=str),
    texts=st.lists(st.text("abcE1[]é _covid19東", max_size=30), min_size=1, max_size=4),
    do_lower_case=st.booleans(),
)
@settings(max_examples=NUM_CASES)
def test_added_tokens_are_those_of_transformers(
    tmp_path_factory: pytest.TempPathFactory,
    added: list[AddedToken],
    texts: list[str],
    do_lower_case: bool,
) -> None:
    folder = tmp_path_factory.mktemp("added")
    theirs = theirs_with(added, folder, do_lower_case)
    normalize = theirs.backend_tokenizer.normalizer.normalize_str
    in_normal_text = [normalize(each.content) for each in added if each.normalized]
    # The library takes any of those that are one there.
    assume(len({*in_normal_text}) == len(in_normal_text))

    ours = BertTokenizer.from_pretrained(folder)

    ours.save(folder / "again")
    copies = pickle.loads(pickle.dumps(ours)), BertTokenizer.from_pretrained(folder / "again")
    marked = ours.reading(special_tokens_in_text=True)
    for text in [*texts, TEXTS[0], TEXTS[1], f"[SEP]{texts[0]}[MASK] {added[0].content}"]:
        assert_equal(marked, theirs, text)
        for copy in copies:
            assert copy.encode(text) == ours.encode(text)


def test_of_added_tokens_that_are_one_in_the_normalised_text_the_first_is_found(
    tmp_path: Path,
) -> None:
    added = [AddedToken(each, special=False) for each in ("Covid19", "COVID19", "covid19")]
    theirs_with(added, tmp_path / "all", do_lower_case=True)
    for _ in range(8):
        ours = BertTokenizer.from_pretrained(tmp_path / "all")
        copied = pickle.loads(pickle.dumps(ours))
        for each in (ours, copied):
            ids = each.encode("COVID19 covid19 COVID19abc").input_ids
            assert ids[1:4] == [len(VOCABULARY)] * 3
            assert each.encode_batch(["covid19"])[0].tolist() == [ids[0], ids[1], ids[-1]]
    assert ours.decode([len(VOCABULARY) + 1]) == "COVID19"


def test_the_files_of_transformers_4_are_read(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    first = len(VOCABULARY)
    names = {"covid19": first, "newdomainword": first + 1, "[E1]": first + 2}
    (tmp_path / "added_tokens.json").write_text(json.dumps(names))
    (tmp_path / "special_tokens_map.json").write_text(
        json.dumps({"additional_special_tokens": ["[E1]"], "cls_token": "[CLS]"})
    )
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')

    ours = BertTokenizer.from_pretrained(tmp_path)

    assert ours.vocab_size == first + 3
    assert ours.tokenize("COVID19 newdomainword [E1] fox") == [
        "covid19", "newdomainword", "[E1]", "fox",
    ]  # fmt: skip
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    for text in TEXTS[:3]:
        assert ours.encode(text).input_ids == theirs(text)["input_ids"]
    ours.save(tmp_path / "saved")
    again = BertTokenizer.from_pretrained(tmp_path / "saved")
    assert again.encode(TEXTS[1]) == ours.encode(TEXTS[1])
    assert ours.decode(ours.encode("fox [E1]").input_ids) == "fox"


def test_an_added_token_with_another_id_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    (tmp_path / "added_tokens.json").write_text(json.dumps({"covid19": len(VOCABULARY) + 7}))

    with pytest.raises(VocabularyError, match=f"the next free one is {len(VOCABULARY)}"):
        BertTokenizer.from_pretrained(tmp_path)


def trained(kind: str) -> Tokenizer:
    """A small tokenizer of a kind, learnt from a few lines."""
    lines = [*TEXTS, *(f"{a} {b}" for a in WORDS for b in WORDS)]
    roberta = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    is_unigram, is_bytes = kind.startswith("unigram"), kind == "byte-level"
    special = roberta if is_unigram or is_bytes else list(SPECIAL_TOKENS)
    trainer: Any
    if is_unigram:
        found = Tokenizer(models.Unigram())
        found.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()])
        found.pre_tokenizer = pre_tokenizers.Metaspace()
        found.decoder = decoders.Metaspace()
        more = [f"<0x{byte:02X}>" for byte in range(256)] if kind.endswith("fallback") else []
        trainer = trainers.UnigramTrainer(
            vocab_size=200 + len(more), special_tokens=[*special, *more], unk_token="<unk>"
        )
    elif is_bytes:
        found = Tokenizer(models.BPE(unk_token="<unk>"))
        found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        found.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
    else:
        found = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        found.normalizer = {
            "cased": normalizers.NFC(),
            "accents": normalizers.BertNormalizer(clean_text=False, strip_accents=False),
            "chinese": normalizers.Sequence(
                [normalizers.BertNormalizer(lowercase=False), normalizers.NFC()]
            ),
            "lowercase": normalizers.Lowercase(),
            "nfkc": normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
        }[kind]
        found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        found.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=250, special_tokens=special)
    found.train_from_iterator(lines, trainer)
    if kind.endswith("fallback"):
        described = json.loads(found.to_str())
        described["model"]["byte_fallback"] = True
        described["added_tokens"] = described["added_tokens"][: len(special)]
        found = Tokenizer.from_str(json.dumps(described))
    ids = {token: found.token_to_id(token) for token in special}
    if special is roberta:
        found.post_processor = (
            processors.RobertaProcessing(("</s>", ids["</s>"]), ("<s>", ids["<s>"]))
            if is_bytes
            else processors.TemplateProcessing(
                single="<s> $A </s>",
                pair="<s> $A </s> </s> $B </s>",
                special_tokens=[(name, ids[name]) for name in ("<s>", "</s>")],
            )
        )
    else:
        found.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(name, ids[name]) for name in ("[CLS]", "[SEP]")],
        )
    return found


KINDS = [
    "unigram", "unigram-fallback", "byte-level", "cased", "accents", "chinese", "lowercase", "nfkc",
]  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp(request.param)
    trained(request.param).save(str(folder / "tokenizer.json"))
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    return BertTokenizer.from_pretrained(folder), theirs, folder


@given(text=st.text(max_size=40))
@settings(max_examples=NUM_CASES)
def test_other_kinds_are_those_of_transformers(both: Any, text: str) -> None:
    ours, theirs, _ = both
    assert isinstance(ours, LibraryTokenizer)
    for each in (text, *TEXTS):
        marked = ours.reading(special_tokens_in_text=True)
        assert_equal(marked, theirs, each)
        assert_equal(marked, theirs, f"{each}{ours.sep_token} the {ours.mask_token}fox")


def test_a_pair_stands_between_its_special_tokens(both: Any) -> None:
    ours, theirs, _ = both

    found = ours.encode("the quick fox", "brown fox")

    expected = theirs("the quick fox", "brown fox", return_token_type_ids=True)
    assert found.input_ids == expected["input_ids"]
    assert found.token_type_ids == expected["token_type_ids"]
    assert [each for each in found.sequence_ids if each is not None].count(1) == len(
        ours.encode("brown fox", add_special_tokens=False)
    )
    texts = ("the quick fox", "brown fox")
    sides = [ours.encode(each, add_special_tokens=False).input_ids for each in texts]
    ids, types = ours.layout.joined(sides)
    assert (ids.tolist(), types.tolist()) == (found.input_ids, found.token_type_ids)


def test_a_special_token_in_a_text_is_text_unless_asked_for(both: Any) -> None:
    ours, theirs, _ = both
    text = f"the {ours.mask_token} fox"

    assert ours.mask_token_id not in ours.encode(text).input_ids
    assert ours.mask_token_id not in ours.encode_batch([text])[0]
    marked = ours.encode(text, special_tokens_in_text=True)
    assert marked.input_ids == theirs(text)["input_ids"]


def test_what_is_saved_is_the_same(both: Any, tmp_path: Path) -> None:
    ours, theirs, _ = both
    ours.save(tmp_path, model_max_length=64)
    again = BertTokenizer.from_pretrained(tmp_path)

    for text in TEXTS:
        assert again.encode(text) == ours.encode(text)
        assert pickle.loads(pickle.dumps(ours)).encode(text) == ours.encode(text)
    reopened = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert reopened(TEXTS[0])["input_ids"] == theirs(TEXTS[0])["input_ids"]
    flat, offsets = ours.encode_flat(TEXTS, num_workers=0)
    assert flat.dtype == np.uint16
    assert len(offsets) == len(TEXTS) + 1


def test_what_only_wordpiece_can_do_says_so(both: Any) -> None:
    ours, _, _ = both
    for doing in (
        lambda: ours.require_wordpiece("a corpus", or_added=True),
        lambda: ours.with_tokens(["[SOS]"]),
    ):
        with pytest.raises(VocabularyError, match=r"needs a WordPiece vocabulary \(vocab\.txt\)"):
            doing()


def test_a_corpus_and_its_masks_take_added_tokens_for_words(tmp_path: Path) -> None:
    from tidybert.corpus.building import build_corpus
    from tidybert.corpus.token_shards import TokenCorpus

    theirs_with([AddedToken("covid19"), AddedToken("[E1]", special=True)], tmp_path, True)
    ours = BertTokenizer.from_pretrained(tmp_path)
    (tmp_path / "text.txt").write_text("the quick COVID19 fox [E1] here.\n\nthe brown fox.\n" * 20)
    build_corpus([tmp_path / "text.txt"], ours, tmp_path / "corpus", held_out=0.0)

    corpus = TokenCorpus(tmp_path / "corpus")

    assert (
        corpus.tokenizer().encode("[E1] covid19").input_ids == ours.encode("[E1] covid19").input_ids
    )
    ids = {int(each) for each in corpus.tokens(np.array([0]), np.array([corpus.num_tokens]))[0]}
    assert {*ours.convert_tokens_to_ids(["covid19", "[E1]"])} <= ids
    with pytest.raises(VocabularyError, match="needs a vocabulary without added tokens"):
        ours.require_wordpiece("TensorFlow's form")
