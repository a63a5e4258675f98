"""The keyword arguments of ``tidybert.finetune`` and ``tidybert.evaluate``, for type checkers.

Each is the flag of the same name, with the same default; a test compares them with the flags.
"""

from pathlib import Path
from typing import Literal, TypedDict

from tidybert.inference.answer_precision import AnswerPrecision
from tidybert.training.training_arguments import HeadPooling, HeadStart, Precision

TaskName = Literal["classify", "regress", "choose", "answer", "tag"]


class ReadingOptions(TypedDict, total=False):
    """How files and frames are read: the fields of ``ReadOptions``."""

    text: str | int | None
    text_pair: str | int | None
    label: str | int | None
    label_separator: str | None
    format: (
        Literal[
            "csv",
            "tsv",
            "jsonl",
            "json",
            "parquet",
            "text",
            "label-text",
            "swag",
            "codah",
            "conll",
        ]
        | None
    )
    header: bool | None
    delimiter: str | None
    quoting: bool | None
    encoding: str | None
    skip_rows: int
    skip_bad_rows: bool


class FinetuneOptions(ReadingOptions, total=False):
    """Those of reading, of the tasks and of the training."""

    long: Literal["truncate", "head-tail", "windows"] | None
    doc_stride: int | None
    multi_label: bool | None
    class_weight: Literal["balanced"] | None
    max_query_length: int | None
    max_answer_length: int | None
    n_best_size: int | None
    null_score_diff_threshold: float | None

    max_seq_length: int | None
    num_train_epochs: float
    max_steps: int | None
    train_batch_size: int
    tokens_per_batch: int
    learning_rate: float | None
    warmup_proportion: float
    head_start: HeadStart | None
    pooling: HeadPooling | None
    weight_decay: float
    adam_beta1: float
    adam_beta2: float
    adam_epsilon: float
    max_grad_norm: float
    dropout: float | None
    seed: int
    eval_steps: int | None
    save_steps: int | None
    save_total_limit: int
    early_stopping_patience: int | None
    freeze_layers: int
    freeze_embeddings: bool
    precision: Precision
    deterministic: bool
    logging_steps: int

    few: bool
    corrections: str | Path | None
    vocab: str | Path | None
    new_head: bool
    device: str
    allow_pickle: bool
    resume: bool
    force: bool
    keep_checkpoints: bool


class EvaluateOptions(ReadingOptions, total=False):
    """Those of reading and of answering."""

    device: str
    precision: AnswerPrecision
    max_seq_length: int | None
    allow_pickle: bool
    resamples: int


class Metrics(TypedDict, total=False):
    """What ``tidybert.evaluate`` gives: the metrics of the task, and how the data were read.

    classify: accuracy to log_loss; its F1 is that of the second of two classes.  regress: pearson
    to mse.  Any number of labels: micro_f1 to macro_average_precision.  answer: exact_match to
    best_f1.  tag: precision, recall, f1 and accuracy, or accuracy and macro_f1.
    """

    accuracy: float
    macro_f1: float
    matthews: float
    f1: float
    log_loss: float
    confusion_matrix: list[list[int]]
    per_label: dict[str, dict[str, float]]
    pearson: float
    spearman: float
    mse: float
    micro_f1: float
    subset_accuracy: float
    hamming_loss: float
    macro_average_precision: float
    exact_match: float
    has_ans_exact: float
    has_ans_f1: float
    no_ans_f1: float
    best_exact: float
    best_f1: float
    precision: float
    recall: float
    num_examples: int
    num_truncated: int
    num_windowed: int
    num_windows: int
    num_trained_on: int
    computed_in: str
