"""The keyword arguments of ``tidybert.finetune`` and ``tidybert.evaluate``, for type checkers.

Each is the flag of the same name, with the same default; a test compares them with the flags.
"""

from pathlib import Path
from typing import Any, Literal, TypedDict

from tidybert.inference.answer_precision import AnswerPrecision
from tidybert.training.training_arguments import HeadPooling, HeadStart, Precision

TaskName = Literal["classify", "regress", "choose", "answer", "tag", "embed"]


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
    """Those of reading, of the tasks (``multi_label`` is for classify) and of the training."""

    long: Literal["truncate", "head-tail", "windows"] | None
    doc_stride: int | None
    class_weight: Literal["balanced"] | None
    max_query_length: int | None
    max_answer_length: int | None
    n_best_size: int | None
    null_score_diff_threshold: float | None
    loss: Literal["infonce", "cosent", "supcon"] | None
    scale: float | None
    both_directions: bool | None
    matryoshka_dims: str | None
    query_prompt: str | None
    document_prompt: str | None

    max_seq_length: int | None
    num_train_epochs: float | None
    max_steps: int | None
    train_batch_size: int | None
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

    seeds: int
    search: bool
    time_limit: float | None
    corrections: str | Path | None
    vocab: str | Path | None
    new_head: bool
    num_layers: int | None
    teacher: str | Path | None
    teacher_weight: float
    teacher_temperature: float
    device: str
    allow_pickle: bool
    resume: bool
    change: bool
    force: bool
    keep_checkpoints: bool
    keep_every: int | None


class NamedFinetuneOptions(FinetuneOptions, total=False):
    """Every keyword argument but ``multi_label``, for the overloads of ``finetune``."""

    dev: Any
    unlabelled: Any
    out: str | Path | None
    verbose: bool


class EvaluateOptions(ReadingOptions, total=False):
    """Those of reading and of answering."""

    device: str
    precision: AnswerPrecision
    max_seq_length: int | None
    allow_pickle: bool
    resamples: int
    texts: Any


class NamedEvaluateOptions(EvaluateOptions, total=False):
    """Every keyword argument, for the overloads of ``evaluate``."""

    report: str | Path | None
    verbose: bool
