"""The page: whole, alone, accessible, and never the texts' to command."""

import base64
import hashlib
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reporting.conftest import all_right
from tests.reporting.trees import ATTACK, checked, parsed, text_of

from tidybert.reporting.contents import report_contents
from tidybert.reporting.drawing import visible
from tidybert.reporting.evaluation import ModelOrigin
from tidybert.reporting.report_page import environment, report_page, told_apart
from tidybert.reporting.training_history import TrainingHistory

KINDS = ["classified", "scored", "answered"]


def page_of(evaluation) -> str:
    return report_page(report_contents(evaluation))


def folded(text: str, longest: int) -> str:
    return str(environment().get_template("macros.html.j2").module.folded(text, longest)).strip()


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_well_formed_and_needs_nothing_else(kind, request) -> None:
    page = page_of(request.getfixturevalue(kind)())
    root = parsed(page)

    assert not re.search(r"https?:|url\(|@import", page)
    for each in root.iter("svg"):
        checked(ET.tostring(each, encoding="unicode"))
    for element in root.iter():
        assert element.tag not in ("link", "img", "iframe", "object")
        assert "src" not in element.attrib
        assert element.get("href", "#").startswith("#")
        assert not any(name.startswith("on") for name in element.attrib)
        # The policy allows the one style sheet alone.
        assert "style" not in element.attrib


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_can_be_read_aloud(kind, request) -> None:
    root = parsed(page_of(request.getfixturevalue(kind)()))

    assert root.get("lang") == "en"
    names = [each.get("id") for each in root.iter() if each.get("id")]
    assert len(names) == len(set(names))
    for each in root.iter():
        for name in each.get("aria-labelledby", "").split():
            assert name in names
        if each.tag == "a":
            assert each.get("href")[1:] in names
    for svg in root.iter("svg"):
        assert svg.get("aria-hidden") == "true" or svg.get("role") == "img"
    for table in root.iter("table"):
        assert text_of(table.find("caption"))
        widths = {len(row) for row in table.iter("tr")}
        assert len(widths) == 1
    assert len(list(root.iter("h1"))) == 1
    # A script makes the buttons and filters; without it there is none that does nothing.
    assert not list(root.iter("button"))
    assert not list(root.iter("input"))


def test_the_policy_allows_exactly_the_style_and_the_script(classified) -> None:
    page = page_of(classified())
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)

    assert policy.startswith("default-src 'none'; ")
    for kind in ("style", "script"):
        (text,) = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}';" in policy


def test_texts_and_labels_never_become_elements(classified) -> None:
    evaluation = classified()
    names = [f"{ATTACK}{number}" for number in range(3)]
    renamed = dict(zip(evaluation.label_names, names, strict=True))
    judgements = [
        replace(
            one,
            text=ATTACK + one.text,
            expected=renamed[one.expected],
            predicted=renamed[one.predicted],
        )
        for one in evaluation.judgements
    ]
    metrics = dict(evaluation.metrics)
    metrics["per_label"] = {renamed[name]: row for name, row in metrics["per_label"].items()}
    hostile = replace(
        evaluation,
        judgements=judgements,
        label_names=names,
        metrics=metrics,
        model=ATTACK,
        data=ATTACK,
        task=ATTACK,
        date=ATTACK,
    )
    clean, attacked = parsed(page_of(evaluation)), parsed(page_of(hostile))

    # Long answers are folded and paths have parts; but for that the elements are the same.
    folded = ("details", "summary", "span")
    assert [each.tag for each in attacked.iter() if each.tag not in folded] == [
        each.tag for each in clean.iter() if each.tag not in folded
    ]
    assert visible(ATTACK) in text_of(attacked)


def test_a_right_to_left_text_keeps_its_direction_to_itself(classified) -> None:
    evaluation = classified(count=30)
    judgements = [replace(one, text="שלום עולם") for one in evaluation.judgements]
    root = parsed(page_of(replace(evaluation, judgements=judgements)))

    holders = [each for each in root.iter() if each.text == "שלום עולם"]
    assert holders
    assert all(each.get("dir") == "auto" for each in holders)


def test_a_short_text_stands_as_it_is_and_an_empty_one_is_told() -> None:
    assert folded("a < b", 10) == '<span dir="auto">a &lt; b</span>'
    assert "(empty)" in folded("", 10)


@given(text=st.text(min_size=21, max_size=200))
def test_a_long_text_is_shortened_and_stands_whole_in_its_details(text: str) -> None:
    root = ET.fromstring(folded(text, 20))
    start, more, whole = (each.text for each in root.iter("span"))

    assert root.tag == "details"
    assert whole == visible(text)
    assert len(start) <= 21
    assert visible(text).startswith(start.removesuffix("…")) or "\r\n" in text
    assert f"{len(text):,}" in more


def test_all_sections_stand_where_there_is_something(classified, scored, answered) -> None:
    def headings(evaluation):
        return [each.text for each in parsed(page_of(evaluation)).iter("h2")]

    assert headings(classified()) == [
        "Metrics",
        "Confidence",
        "Confusions",
        "By class",
        "Length",
        "Errors",
        "Closest calls",
        "Suspected label errors",
        "Training",
    ]
    assert headings(scored()) == ["Metrics", "Predicted and true scores", "Length", "Errors"]
    assert headings(answered()) == ["Metrics", "Confidence", "Length", "Errors", "Closest calls"]


def test_the_figures_of_the_contents_stand_on_the_page(classified) -> None:
    contents = report_contents(classified())
    text = text_of(parsed(report_page(contents)))

    accuracy = contents["metrics"]["accuracy"]
    assert f"{accuracy['value']:.3f}" in text
    assert f"{accuracy['low']:.3f}\xa0to\xa0{accuracy['high']:.3f}" in text
    assert f"{contents['calibration']['expected_calibration_error']:.3f}" in text
    assert "F1 of" not in text
    assert "2026-01-02 03:04" in text
    for each in contents["errors"]["shown"]:
        assert each["text"].strip() in text


def test_the_head_tells_what_was_cut_and_where_the_model_comes_from(
    answered, scored, classified
) -> None:
    def facts(evaluation):
        head = parsed(page_of(evaluation)).find("body/header/dl")
        return {text_of(each.find("dt")): text_of(each.find("dd")) for each in head}

    cut = facts(answered())
    assert cut["cut short"] == "1 of 50 examples had their question cut to --max-query-length"
    assert cut["max_seq_length"] == "384 tokens"
    assert facts(scored())["cut short"] == "none"
    assert "seed" not in cut
    origin = ModelOrigin("minilm", "data/train.csv", 7, "0123456789abcdef" * 4)
    found = facts(classified(origin=origin))
    names = ("started from", "trained on", "seed", "hash of the model")
    assert [found[name] for name in names] == ["minilm", "data/train.csv", "7", "0123456789ab"]


def test_a_path_in_the_head_may_break_after_a_slash(classified) -> None:
    root = parsed(page_of(classified(model="/runs/a&b//3", data="dev.tsv")))
    parts = [each.text for each in root.iter("span") if each.get("class") == "part"]

    assert parts == ["/", "runs/", "a&b/", "/", "3", "dev.tsv"]


def test_scores_are_measured_in_full_and_shown_short(scored) -> None:
    evaluation = scored(count=2)
    spelled = [("1234567.8", "1234569.1"), ("0.1", "0.10000000149011612")]
    judgements = [
        replace(one, expected=expected, predicted=predicted)
        for one, (expected, predicted) in zip(evaluation.judgements, spelled, strict=True)
    ]
    contents = report_contents(replace(evaluation, judgements=judgements))
    errors = next(
        each
        for each in parsed(report_page(contents)).iter("ol")
        if each.get("aria-label") == "Errors"
    )

    assert contents["errors"]["shown"][0]["residual"] == pytest.approx(1.3)
    assert contents["scores"]["mean_absolute_error"] == pytest.approx(0.65)
    assert contents["errors"]["shown"][1]["predicted"] == "0.10000000149011612"
    assert [each.text for each in errors.iter("span")][0::3] == ["1234568", "0.1"]
    assert [each.text for each in errors.iter("span")][1::3] == ["1234569", "0.1"]


@pytest.mark.parametrize(
    ("classes", "pictures", "tables"), [(2, 1, 1), (20, 1, 1), (77, 1, 0), (151, 0, 0)]
)
def test_confusions_of_few_and_of_many_classes(classified, classes, pictures, tables) -> None:
    root = parsed(page_of(classified(count=600, classes=classes)))
    section = next(
        each for each in root.iter("section") if each.get("aria-labelledby") == "confusions"
    )

    assert len(list(section.iter("svg"))) == pictures
    captions = [text_of(each) for each in section.iter("caption")]
    assert sum("Counts" in each for each in captions) == tables
    assert sum("most frequent" in each for each in captions) == (classes > 2)


def test_many_classes_have_the_weakest_first(classified) -> None:
    root = parsed(page_of(classified(count=600, classes=30)))
    table = next(each for each in root.iter("table") if each.get("class") == "sortable")
    f1 = [float(row[3].get("data-value")) for row in table.find("tbody")]
    assert f1 == sorted(f1)


def test_sentences_stand_only_where_they_are_true(classified, answered) -> None:
    page, other = page_of(classified()), page_of(answered(correctness="F1 of the answer"))
    heads = [text_of(each) for each in parsed(page).find(".//table").iter("th")]

    assert heads[:5] == ["metric", "value", "95 % interval", "baseline", "on its scale"]
    assert "the most frequent class of this file" in page
    assert "The baseline gives" not in other
    assert "F1 of the answer against coverage" in other
    assert "accuracy" not in other
    fitted_on_dev = "calibration looks better than it is"
    assert f"If this is that file, {fitted_on_dev}" in page
    assert fitted_on_dev not in page_of(classified(temperature=None))
    same, another = page_of(classified(is_dev=True)), page_of(classified(is_dev=False))
    assert f"This is that file: {fitted_on_dev}" in same
    assert "This is another file." in another
    assert fitted_on_dev not in another
    flatters = "this file chose the best weights in training"
    assert (flatters in same, flatters in another, flatters in page) == (True, False, False)


def test_thresholds_have_the_digits_that_tell_them_apart(classified) -> None:
    contents = report_contents(classified())
    thresholds = [0.9986321, 0.99991, 0.9999771, 1.0]
    contents["coverage"]["choices"] = [
        {"coverage": 0.5, "accuracy": 1.0, "threshold": each} for each in thresholds
    ]
    root = parsed(report_page(contents))
    (table,) = (
        each
        for each in root.iter("table")
        if text_of(each.find("caption")) == "Thresholds to choose from"
    )
    cells = [row[2] for row in table.find("tbody")]

    # Rounded down, each still lets its own answers pass.
    assert [text_of(each) for each in cells] == ["0.99863", "0.99991", "0.99997", "1.00000"]
    assert [float(each.get("data-value")) for each in cells] == thresholds
    assert told_apart([0.99996], 4) == ["0.9999"]
    assert told_apart([0.5, 0.25]) == ["0.500", "0.250"]


def test_suspected_labels_are_no_headline_of_a_weak_model(classified) -> None:
    weak, strong = page_of(classified()), page_of(all_right(classified()))

    assert "of the examples; read them" not in weak
    assert "most of these are likely its own mistakes" in weak
    assert "of the examples; read them" in strong
    assert "its own mistakes" not in strong


def test_a_word_breaks_only_where_no_line_can_hold_it() -> None:
    style = (resources.files("tidybert") / "resources/report/report.css").read_text("utf-8")

    assert "overflow-wrap: break-word" in style
    assert "anywhere" not in style
    assert "break-all" not in style


def test_what_came_before_step_1_is_told_and_drawn(classified) -> None:
    losses = [{"step": step, "loss": 1 / step} for step in (1, 2, 3)]
    stages = [
        {"stage": "contrast", "seconds": 280.5, "steps": losses},
        {"stage": "probe", "seconds": 1.5, "steps": []},
    ]
    page = page_of(replace(classified(), training=TrainingHistory([], [], stages=stages)))

    assert "Before step 1: contrast 280.5 s, probe 1.5 s." in text_of(parsed(page))
    assert "course-contrast" in page
