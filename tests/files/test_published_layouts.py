"""Public data sets are read as they were published, with the flags that PUBLISHED_LAYOUTS gives."""

import json
from pathlib import Path

import pytest

from benchmarks.harness.datasets import PUBLISHED_LAYOUTS
from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.files.text_examples import label_names
from tidybert.files.text_files import read_examples

pytestmark = pytest.mark.real_data

# Examples in the file, and how the first one's text, second text and label begin.
FILES = {
    "glue/SST-2/train.tsv": (67_349, "hide new secretions from", None, "0"),
    "glue/SST-2/dev.tsv": (872, "it 's a charming and", None, "1"),
    "glue/RTE/train.tsv": (
        2_490,
        "No Weapons of Mass Destruction Found in Iraq Yet.",
        "Weapons of Mass",
        "not_entailment",
    ),
    "glue/RTE/dev.tsv": (277, "Dana Reeve, the widow", "Christopher Reeve had", "not_entailment"),
    "glue/QNLI/dev.tsv": (5_463, "What came into force", "As of that day,", "entailment"),
    "glue/MRPC/msr-para-train.tsv": (
        3_576,
        'Amrozi accused his brother, whom he called "the witness",',
        'Referring to him as only "the witness",',
        "1",
    ),
    "glue/MRPC/msr-para-val.tsv": (500, "Stocks have rallied", "Stocks have rallied", "1"),
    "glue/MRPC/msr-para-test.tsv": (1_725, "PCCW's chief", "Current Chief Operating", "1"),
    "glue/STS-B/sts-train.csv": (5_749, "A plane is taking", "An air plane is taking", "5.000"),
    "glue/STS-B/sts-dev.csv": (1_500, "A man with a hard", "A man wearing a hard", "5.000"),
    "glue/STS-B/sts-test.csv": (1_379, "A girl is styling", "A girl is brushing", "2.500"),
    "glue/QQP/subset-train.json": (8_999, "How do I get inside", "Which is better,", "0"),
    "glue/QQP/subset-dev.json": (1_000, "Who is the stupidest", "Who is the most", "0"),
    "glue/MNLI/subset-train.json": (8_999, "Our hearts are", "We are especially", "entailment"),
    "glue/MNLI/subset-dev.json": (1_000, "Salt kept the", "Salt kept the", "entailment"),
    "glue/QNLI/subset-train.json": (8_999, "What sector has", "The IT sector", "not_entailment"),
    "glue/QNLI/subset-dev.json": (1_000, "How long after", "On 28 September", "not_entailment"),
    "text/sms_spam/SMSSpamCollection": (5_574, "Go until jurong point", None, "ham"),
    "text/banking77/train.csv": (10_003, "I am still waiting on my card?", None, "card_arrival"),
    "text/banking77/test.csv": (3_080, "How do I locate my card?", None, "card_arrival"),
    "text/trec/TREC.train.all": (5_452, "How did serfdom develop", None, "0"),
    "text/trec/TREC.test.all": (500, "How far is it from Denver", None, "5"),
    "zh/chnsenticorp/train.tsv": (9_600, "选择珠江花园的原因", None, "1"),
}


def layout(name: str) -> ReadOptions:
    """The one layout whose pattern the file matches."""
    (options,) = [o for pattern, o in PUBLISHED_LAYOUTS.items() if Path(name).match(pattern)]
    return options


@pytest.mark.parametrize("name", FILES)
def test_published_files_are_read_as_they_are(real_data, name):
    report = ReadReport()
    scores = "STS-B" in name
    examples = list(
        read_examples(real_data / name, layout(name), need_label=True, scores=scores, report=report)
    )
    count, text, text_pair, label = FILES[name]
    assert len(examples) == report.num_examples == count
    assert report.num_problems == 0
    assert examples[0].text.startswith(text)
    assert examples[0].label == label
    if text_pair is None:
        assert examples[0].text_pair is None
    else:
        assert examples[0].text_pair.startswith(text_pair)


@pytest.mark.parametrize("name", [name for name in FILES if Path(name).suffix == ".tsv"])
def test_well_known_names_need_no_flags(real_data, name):
    report = ReadReport()
    first = next(read_examples(real_data / name, need_label=True, report=report))
    assert first == next(read_examples(real_data / name, layout(name), need_label=True))
    assert report.guessed


def test_quotes_in_mrpc_are_data(real_data):
    path = real_data / "glue/MRPC/msr-para-train.tsv"
    examples = read_examples(path, layout("glue/MRPC/msr-para-train.tsv"), need_label=True)
    quotes = sum((e.text + (e.text_pair or "")).count('"') for e in examples)
    assert quotes == path.read_text(encoding="utf-8-sig").count('"') > 0


def test_labels_of_banking77_are_its_77_categories(real_data):
    folder = real_data / "text/banking77"
    names = json.loads((folder / "categories.json").read_text(encoding="utf-8"))
    assert label_names(read_examples(folder / "train.csv", need_label=True)) == sorted(names)


def test_a_wrong_byte_in_trec_is_found_by_line(real_data):
    path = real_data / "text/trec/TREC.train.all"
    report = ReadReport()
    options = ReadOptions(format="label-text")
    examples = list(
        read_examples(path, options, need_label=True, skip_bad_rows=True, report=report)
    )
    lines = path.read_bytes().split(b"\n")
    assert [b"\xf0" in lines[problem.row - 1] for problem in report.problems] == [True]
    assert len(examples) == 5_451
