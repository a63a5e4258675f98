"""Checks of tagged sentences before training: what stops it, and what is only said."""

from collections.abc import Sequence

from tidybert.data.checks import DataReport, TrainingData
from tidybert.errors import in_python
from tidybert.tasks.tags.tag_files import TaggedExample
from tidybert.tasks.tags.tagging import Tagging, tagged_features
from tidybert.tokenization import BertTokenizer

TOKENIZER = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcd"])


def sentences(*written: str) -> list[TaggedExample]:
    """Of "a/O b/B-x"."""
    return [
        TaggedExample(
            tuple(each.split("/")[0] for each in one.split()),
            tuple(each.split("/")[1] for each in one.split()),
            row,
        )
        for row, one in enumerate(written, start=1)
    ]


def check(
    train: Sequence[TaggedExample],
    dev: Sequence[TaggedExample] | None = None,
    *,
    of_entities: bool = True,
    max_seq_length: int = 16,
) -> DataReport:
    train_features = tagged_features(train, TOKENIZER, max_seq_length, None)
    dev_features = tagged_features(dev or (), TOKENIZER, max_seq_length, None)
    task = Tagging(["O"] if of_entities else ["NN"])
    return task.check(TrainingData(train, dev, train_features, dev_features, max_seq_length))


TRAIN = sentences("a/O b/B-x c/I-x", "c/B-y d/O", "d/B-x a/B-y")


def test_good_data_have_nothing_to_tell() -> None:
    report = check(TRAIN, sentences("b/O a/B-x"))

    assert (report.errors, report.warnings) == ([], [])
    assert report.lines() == [
        "3 examples to train, 1 to evaluate",
        "classes: 'x' 2, 'y' 2",
        "tokens, train: 4 (50%), 5 (90%), 5 (95%), 5 (99%), 5 (max)",
        "tokens, dev: 4 (50%), 4 (90%), 4 (95%), 4 (99%), 4 (max)",
        "a guess, always O, is right for 50.0% of the dev words, with an F1 of 0",
        "7 words to train",
    ]


def test_what_stops_training() -> None:
    assert check([]).errors == ["the training data hold no example"]
    assert check(TRAIN, []).errors == ["the dev data hold no example"]
    assert "every training tag is O" in check(sentences("a/O b/O")).errors[0]
    plain = check(sentences("a/NN b/NN"), of_entities=False)
    assert "every training word has the tag 'NN'; two at least" in plain.errors[0]
    unknown = check(TRAIN, sentences("a/B-z b/B-w", "b/B-z")).errors
    assert len(unknown) == 1
    assert "entities of dev examples that no training example has: 'w' 1, 'z' 2" in unknown[0]
    (error,) = check(TRAIN, sentences("")).errors
    assert in_python(error) == "1 dev example without a word (line 1)"


def test_what_is_only_said() -> None:
    train = [*TRAIN, *sentences("a/O", "a/O b/B-x c/O", "d/B-z")]
    report = check(train, sentences("b/O", "c/B-y d/O", "d/B-x a/B-x"))

    assert report.errors == []
    told = [
        warning.split(";")[0].split(" that a")[0] for warning in map(in_python, report.warnings)
    ]
    assert told == [
        "entities with a single training example: 'z'",
        "1 sentence with contradictory tags, in 2 training examples (lines 1, 2)",
        "2 dev examples of 3 with a sentence",
    ]


def test_classes_of_words_are_counted() -> None:
    report = check(sentences("a/NN b/VB", "c/NN d/:"), of_entities=False)

    assert report.label_counts == {":": 1, "NN": 2, "VB": 1}
    assert "a guess, always NN, is right for 50.0% of the training words" in report.facts


def test_windows_and_silent_words_are_told() -> None:
    train = sentences("a/O b/B-x c/O d/O a/O b/O c/O", "\u200b/O a/B-x")
    report = check(train, sentences("a/B-x"), max_seq_length=6)

    assert [*map(in_python, report.facts)] == [
        "a guess, always B-x, is right for 100.0% of the dev words",
        "9 words to train",
        "train: 1 example longer than max_seq_length 6 and read in windows, 3 of them",
        "train: 1 word of characters that the tokenizer drops; each has the tag before it",
    ]
    assert report.num_truncated == {"train": 0, "dev": 0}
    assert report.warnings == []
