"""Checks of tagged sentences before training."""

from collections import Counter
from collections.abc import Sequence

from tidybert.data.checks import DataReport, TrainingData, check_labels
from tidybert.errors import param
from tidybert.files.wording import count_of
from tidybert.tasks.tags.tagged_sentences import TaggedExample, marked_by


def check_tags(report: DataReport, data: TrainingData[TaggedExample], *, of_entities: bool) -> None:
    """Check the types of entities, or the tags, and that every sentence has a word."""
    counts, in_dev = (_count(each, of_entities) for each in (data.train, data.held_out))
    if not counts:
        report.errors.append(
            f"every training tag is O, so no entity can be learned (is {param('label')} the "
            "right column?)"
        )
    elif not of_entities and len(counts) == 1:
        report.errors.append(
            f"every training word has the tag {next(iter(counts))!r}; two at least are needed (is "
            f"{param('label')} the right column?)"
        )
    nouns = "entities" if of_entities else "tags"
    check_labels(report, counts, in_dev, nouns, remedy="add examples")
    for counted, lines in data.those(lambda one: not one.words):
        report.errors.append(f"{counted} without a word ({lines})")


def _count(examples: Sequence[TaggedExample], of_entities: bool) -> Counter[str]:
    """How often each type of entity, or each tag, occurs."""
    counts: Counter[str] = Counter()
    for one in examples:
        counts.update(marked_by(one.tags or (), of_entities=of_entities))
    return counts


def count_words(report: DataReport, data: TrainingData[TaggedExample]) -> None:
    """Report the number of words, and how the model reads them."""
    num_words = sum(len(one.words) for one in data.train)
    report.facts.append(f"{count_of(num_words, 'word')} to train")
    for part, _, features in data.parts():
        windows = Counter(one.example for one in features)
        longer = sum(count > 1 for count in windows.values())
        if longer:
            num_windows = len(features) - len(windows) + longer
            report.facts.append(
                f"{part}: {count_of(longer, 'example')} longer than {param('max_seq_length')} "
                f"{data.max_seq_length} and read in windows, {num_windows:,} of them"
            )
        silent = sum(one.place.num_silent for one in features)
        if silent:
            report.facts.append(
                f"{part}: {count_of(silent, 'word')} of characters that the tokenizer drops; the "
                "model sees [UNK] for each"
            )
