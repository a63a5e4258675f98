"""Classify many kinds of text with tidybert and transformers, all else the same.

    python benchmarks/text.py --seeds 3 --out text.jsonl --write docs/results.md

Spam, bank customers' intents, question types, and subsets of QNLI, MNLI and QQP.  These subsets of
1,000 examples are not GLUE's dev parts, so their scores are not GLUE's.  Turns, --out and the dev
metric are as in glue.py.  SMS spam has no parts of its own: every tenth message is held out.
ChnSentiCorp takes a small model of random weights with the Chinese vocabulary.  That shows that it
runs, and how fast, but not the scores of a Chinese BERT.
"""

import json
from dataclasses import replace
from pathlib import Path

from side_by_side import DATA, Job, run

from tidybert.files.read_options import PUBLISHED_LAYOUTS, ReadOptions
from tidybert.timing.work import FinetuningWork

SPAM = "text/sms_spam/SMSSpamCollection"
HELD_OUT = 10  # every tenth message is
SUBSET = PUBLISHED_LAYOUTS["glue/QNLI/*.json"]


def subset(name: str, *metrics: str) -> Job:
    """A labelled subset of a task of GLUE."""
    train, dev = (f"glue/{name}/subset-{part}.json" for part in ("train", "dev"))
    return Job("classify", train, dev, SUBSET, metrics, num_examples=3200)


TASKS = {
    "SMS spam": Job("classify", SPAM, SPAM, PUBLISHED_LAYOUTS[SPAM], ("accuracy", "f1")),
    "BANKING77": Job(
        "classify",
        "text/banking77/train.csv",
        "text/banking77/test.csv",
        PUBLISHED_LAYOUTS["text/banking77/t*.csv"],
        ("accuracy", "macro_f1"),
        num_train_epochs=3,
    ),
    "TREC": Job(
        "classify",
        "text/trec/TREC.train.all",
        "text/trec/TREC.test.all",
        PUBLISHED_LAYOUTS["text/trec/TREC.*.all"],
        ("accuracy",),
    ),
    "ChnSentiCorp": Job(
        "classify",
        "zh/chnsenticorp/train.tsv",
        "zh/chnsenticorp/dev.tsv",
        ReadOptions(text="text_a", label="label"),
        ("accuracy",),
        num_examples=3200,
    ),
    "QNLI subset": subset("QNLI", "accuracy"),
    "MNLI subset": subset("MNLI", "accuracy"),
    "QQP subset": subset("QQP", "accuracy", "f1"),
}


def prepared(name: str, work: FinetuningWork, folder: Path) -> FinetuningWork:
    """The work; the files that it needs are written to ``folder``."""
    if name == "SMS spam":
        train, dev = spam_parts(folder)
        return replace(work, train=train, dev=dev)
    if name == "ChnSentiCorp":
        return replace(work, model=random_chinese_model(folder))
    return work


def spam_parts(folder: Path) -> tuple[str, str]:
    """Write the training messages, and every tenth message, to ``folder``."""
    lines = (DATA / SPAM).read_bytes().splitlines(keepends=True)
    train, dev = folder / "train", folder / "dev"
    train.write_bytes(b"".join(line for at, line in enumerate(lines) if at % HELD_OUT))
    dev.write_bytes(b"".join(lines[::HELD_OUT]))
    return str(train), str(dev)


def random_chinese_model(folder: Path) -> str:
    """Write a model of size mini, with the same random weights every time."""
    import torch

    from tidybert.checkpoints.conversion import to_huggingface
    from tidybert.checkpoints.tensor_files import write_tensors
    from tidybert.configuration import BertConfig
    from tidybert.modeling import BertModel
    from tidybert.tokenization import BertTokenizer

    tokenizer = BertTokenizer.from_file(
        DATA / "vocab/bert-base-chinese/vocab.txt", do_lower_case=True
    )
    config = BertConfig.from_name("mini", vocab_size=tokenizer.vocab_size)
    torch.manual_seed(0)
    write_tensors(folder, to_huggingface(BertModel(config).state_dict(), config))
    description = {"model_type": "bert", **config.to_dict()}
    (folder / "config.json").write_text(json.dumps(description), encoding="utf-8")
    tokenizer.save(folder)
    return str(folder)


def main() -> None:
    """Measure what --out lacks, then print the table."""
    run(__doc__, TASKS, "text", prepared)


if __name__ == "__main__":
    main()
