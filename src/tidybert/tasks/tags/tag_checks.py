"""What is worth knowing of tagged sentences before training: errors that stop it, and warnings."""

from collections import Counter
from collections.abc import Sequence

from tidybert.data.checks import DataReport, check_lengths, lines_of
from tidybert.data.features import Features
from tidybert.errors import param
from tidybert.files.labels import label_order
from tidybert.files.wording import count_of
from tidybert.tasks.tags.tag_schemes import marked_by
from tidybert.tasks.tags.tagged_sentences import TaggedExample


def check_tagged(
    train: Sequence[TaggedExample],
    dev: Sequence[TaggedExample] | None,
    train_features: Sequence[Features],
    dev_features: Sequence[Features],
    *,
    of_entities: bool,
    max_seq_length: int,
) -> DataReport:
    """Examine tagged sentences before training."""
    report = DataReport("tag", len(train), None if dev is None else len(dev))
    if not train:
        report.errors.append("there are no training examples")
        return report
    if dev is not None and not dev:
        report.errors.append("there are no dev examples")
    counts, in_dev = (_count(each, of_entities) for each in (train, dev or ()))
    report.label_counts = {name: counts[name] for name in sorted(counts, key=label_order)}
    noun = "entity" if of_entities else "tag"
    if not counts:
        report.errors.append(
            f"every training tag is O, so there is no entity to learn (is {param('label')} the "
            "right column?)"
        )
    elif not of_entities and len(counts) == 1:
        report.errors.append(
            f"every training word has the tag {next(iter(counts))!r}; two at least are needed (is "
            f"{param('label')} the right column?)"
        )
    unknown = sorted(in_dev.keys() - counts.keys(), key=label_order)
    if unknown:
        report.errors.append(
            f"the {noun} {unknown[0]!r} stands in dev and in no training example"
            + (f", nor do {len(unknown) - 1} more" if unknown[1:] else "")
            + "; spell the tags alike in both files, or add training examples"
        )
    lone = [name for name, count in report.label_counts.items() if count == 1]
    if lone:
        report.warnings.append(
            f"there is a single training example of {', '.join(map(repr, lone[:5]))}"
            + (f" and of {len(lone) - 5} more" if lone[5:] else "")
            + "; add examples"
        )
    for part, examples in (("training", train), ("dev", dev or ())):
        empty = [one.row for one in examples if not one.words]
        if empty:
            report.errors.append(
                f"{count_of(len(empty), f'{part} example')} without a word ({lines_of(empty)})"
            )
    _check_repeated(report, train, dev or ())
    _tell_words(report, train, train_features, dev_features, max_seq_length)
    check_lengths(report, train_features, dev_features, max_seq_length)
    return report


def _count(examples: Sequence[TaggedExample], of_entities: bool) -> Counter[str]:
    """How often each type of entity, or each tag, occurs."""
    counts: Counter[str] = Counter()
    for one in examples:
        counts.update(marked_by(one.tags or (), of_entities=of_entities))
    return counts


def _check_repeated(
    report: DataReport, train: Sequence[TaggedExample], dev: Sequence[TaggedExample]
) -> None:
    tags_of = {one.words: one.tags for one in train}
    torn = [one.row for one in train if tags_of[one.words] != one.tags]
    if torn:
        report.warnings.append(
            f"{count_of(len(torn), 'training example')} with the words of a later one and other "
            f"tags ({lines_of(torn)}); decide on one reading"
        )
    shared = [one.row for one in dev if one.words in tags_of]
    if shared:
        report.warnings.append(
            f"{count_of(len(shared), 'dev example')} of {len(dev):,} with words that stand in the "
            f"training examples too ({lines_of(shared)} of dev), so the dev metrics flatter the "
            "model; remove them from one of the two"
        )


def _tell_words(
    report: DataReport,
    train: Sequence[TaggedExample],
    train_features: Sequence[Features],
    dev_features: Sequence[Features],
    max_seq_length: int,
) -> None:
    num_words = sum(len(one.words) for one in train)
    report.facts.append(f"{count_of(num_words, 'word')} to train")
    for part, features in (("train", train_features), ("dev", dev_features)):
        windows = Counter(one.example for one in features)
        longer = sum(count > 1 for count in windows.values())
        if longer:
            report.facts.append(
                f"{part}: {count_of(longer, 'example')} longer than {param('max_seq_length')} "
                f"{max_seq_length} and read in windows, {len(features) - len(windows) + longer:,} "
                "of them"
            )
        silent = sum(one.place.num_silent for one in features)
        if silent:
            report.facts.append(
                f"{part}: {count_of(silent, 'word')} of characters that the tokenizer drops; the "
                "model sees [UNK] for each"
            )
