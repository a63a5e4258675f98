"""Written by python tests/stubs.py --write, from the options of tidybert.finetuning.keywords."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

class FinetuneOptions(TypedDict, total=False):
    text: str | int | None
    'Column of the text, by name or number from 0. If not set: guessed from common names.'
    text_pair: str | int | None
    'Column of the second text of a pair. If not set: none if text is set, else guessed from common names.'
    label: str | int | None
    'Column of the class or score; for label sets several of 0 and 1: toxic,insult. If not set: guessed from common names.'
    label_separator: str | None
    'Characters between the labels of a label set, such as semicolon. If not set: comma. JSON, Parquet and cells may contain lists.'
    format: Literal['csv', 'tsv', 'sheet', 'jsonl', 'json', 'parquet', 'arrow', 'folder', 'brat', 'text', 'label-text', 'swag', 'codah', 'conll'] | None
    'csv, tsv, sheet, jsonl, json, parquet, arrow, folder, brat, text, label-text, swag, codah or conll. If not set: by suffix or content.'
    sheet: str | None
    'Sheet of a spreadsheet. If not set: the first that is not hidden.'
    header: bool | None
    'Read column names from the first row of csv or tsv, or not. If not set: tidybert looks for the columns there.'
    delimiter: str | None
    'Character between cells, or tab, comma, semicolon or pipe. If not set: comma in csv, tab in tsv, or what every row shows.'
    quoting: bool | None
    'Read "..." as one cell that may contain delimiters and line ends, or as plain text. If not set: plain text only between tabs.'
    encoding: str | None
    'Encoding of the file. If not set: utf-8, or what the file shows: utf-16 by its byte-order mark, cp1252 by its letters.'
    skip_rows: int
    'Pass over the first N lines of csv or tsv, such as a title.'
    follow_links: bool
    'Also read what links in a folder of texts name outside of it.'
    loss: Literal['infonce', 'cosent', 'supcon'] | None
    'embed: infonce (pairs, with in-batch negatives), cosent (pairs with scores) or supcon (texts with labels). If not set: by the columns.'
    scale: float | None
    'embed: factor of the cosines in the loss, one over the temperature. If not set: 20.'
    both_directions: bool | None
    'embed: with infonce, also find each first text among all first ones.'
    matryoshka_dims: str | None
    'embed: also train the first so many values of each vector, as in 256,128,64.'
    query_prompt: str | None
    'embed: text to put before the first text of each pair, such as "query: ".'
    document_prompt: str | None
    'embed: text to put before all other texts, such as "passage: ".'
    doc_stride: int | None
    "Tokens from the start of one window over a long text to the start of the next, as in Google's code."
    min_recall: str | float | None
    "tag: give entities from the score that finds this share of dev's: 0.99, or by type PER=0.99,LOC=0.9."
    min_precision: str | float | None
    'tag: give entities from the lowest score at which this share of them is right: 0.95, or by type, as PER=0.95.'
    max_query_length: int | None
    'answer: most tokens of a question; a longer one is cut.'
    max_answer_length: int | None
    'answer: most tokens of an answer.'
    n_best_size: int | None
    'answer: number of answers to give for each question.'
    null_score_diff_threshold: float | None
    'answer: give "no answer" where its score is higher than the best answer\'s by this. If not set: fitted on dev.'
    long: Literal['truncate', 'head-tail', 'windows'] | None
    'classify, regress: cut a text that is too long: truncate keeps its start, head-tail its start and end; windows reads it all and averages.'
    soft: bool | None
    'classify: labels may be probabilities: objects, a column a class, or several rows of a text.'
    class_weight: Literal['balanced'] | None
    'classify: balanced gives rare classes more weight in the loss.'
    min_coverage: float | None
    'classify: give null as the label below the score from which this share of dev has a label.'
    min_accuracy: float | None
    'classify: give null as the label below the lowest score from which this share of the labels given to dev is right.'
    num_train_epochs: float | None
    'Passes over the training data; 0 trains nothing after head_start. If not set: 3, or by the number of labels.'
    max_steps: int | None
    'Stop after this many steps, even before num_train_epochs.'
    train_batch_size: int | None
    'Examples in each update of the weights. If not set: 32, or 8 for up to 3,000 pairs, scores, choices, tags or questions.'
    tokens_per_batch: int
    'Split a step into parts of at most this many tokens and sum their gradients, to bound memory.'
    learning_rate: float | None
    'Highest learning rate. If not set: 5e-5 for widths of 512 and more; below 1e-4, and 3e-4 to tag or answer.'
    warmup_proportion: float
    'Fraction of the steps over which the learning rate rises from 0; it then falls linearly to 0.'
    head_start: Literal['probe', 'contrastive', 'random'] | None
    'Begin a new head as a fit to the encoder (probe), after contrastive training (contrastive), or random. If not set: by the labels.'
    pooling: Literal['cls', 'mean'] | None
    'Read [CLS] (cls) or the mean of all tokens (mean), which transformers cannot open. If not set: as MODEL, or by the labels.'
    dropout: float | None
    'Dropout in the encoder and before the head, 0 or above and below 1. If not set: as MODEL.'
    weight_decay: float
    'Decoupled weight decay, on weight matrices and embeddings but not on biases and LayerNorm.'
    adam_beta1: float
    "AdamW's decay rate of the mean gradient."
    adam_beta2: float
    "AdamW's decay rate of the mean squared gradient."
    adam_epsilon: float
    "AdamW's guard against division by zero."
    max_grad_norm: float
    'Scale gradients down to at most this norm.'
    seed: int
    'Random seed for head weights, example order and dropout.'
    eval_steps: int | None
    'Evaluate on dev after every N steps. If not set: at the end of each epoch.'
    save_steps: int | None
    'Write a checkpoint after every N steps. If not set: at the end of each epoch.'
    save_total_limit: int
    'Checkpoints to keep, besides the best weights.'
    early_stopping_patience: int | None
    'Stop after this many evaluations without a better one. If not set: never.'
    freeze_layers: int
    'Do not train the embeddings and this many of the lowest layers.'
    freeze_embeddings: bool
    'Do not train the embeddings.'
    precision: Literal['auto', 'float32', 'bfloat16']
    'Compute in float32 or bfloat16 (autocast); auto is bfloat16 where the device suits it.'
    deterministic: bool
    'On CUDA, repeat to the bit with the same seed and machine, by slower kernels; without it, to rounding. A CPU always repeats.'
    logging_steps: int
    'Write a line of metrics.jsonl after every N steps.'
    descriptions: Any
    'A file of labels and texts that say what each class means.'
    allow_pickle: bool
    'Also read weights from a pickle; nothing else in it is loaded.'
    skip_bad_rows: bool
    'Skip rows that cannot be read, and report which.'
    device: str
    'Device to compute on: auto, cpu, cuda or cuda:N.'
    resume: bool
    'Continue from the last checkpoint in RUN.'
    change: bool
    'With resume, let arguments change the steps from here on; RUN records it.'
    force: bool
    'Replace the RUN that out names, if there is one, once training can begin.'
    keep_checkpoints: bool
    'Keep RUN/checkpoints when the run is finished.'
    keep_every: int | None
    'Keep the checkpoint of every Nth save_steps for good.'
    corrections: str | Path | None
    'CSV of tidybert check with right labels of train, for classify.'
    max_seq_length: int | None
    'Most tokens of a sequence. If not set: 384 for answer, 128 for other tasks.'
    seeds: int
    'Train N models with the seeds from seed on, and keep the best.'
    search: bool
    "Try the paper's learning rates, batch sizes and epochs, and keep the best."
    time_limit: float | None
    'Start no trial of search that would end after this time.'
    vocab: str | Path | None
    "Take this model's vocabulary, where MODEL is a size such as mini."
    new_head: bool
    'Reinitialise the head even if MODEL already has one.'
    num_layers: int | None
    "Begin with N of MODEL's layers, evenly spread. If not set: all."
    teacher: str | Path | None
    "Learn this finished RUN's answers too, of the same task and labels; for embed a MODEL's vectors, or a regress RUN's scores."
    class_names: bool | None
    'For classify, begin a new head with the names of the classes as further examples. If not set: by the number of labels.'
    labels: Any
    'For classify, names of all classes. One that no text has yet is learned from its name, or from descriptions.'
    teacher_weight: float
    "Share of the teacher's answers in the loss of a labelled example, above 0 and up to 1."
    teacher_temperature: float
    'Divide logits of teacher and student by this before they are compared.'

class EvaluateOptions(TypedDict, total=False):
    text: str | int | None
    'Column of the text, by name or number from 0. If not set: guessed from common names.'
    text_pair: str | int | None
    'Column of the second text of a pair. If not set: none if text is set, else guessed from common names.'
    label: str | int | None
    'Column of the class or score; for label sets several of 0 and 1: toxic,insult. If not set: guessed from common names.'
    label_separator: str | None
    'Characters between the labels of a label set, such as semicolon. If not set: comma. JSON, Parquet and cells may contain lists.'
    format: Literal['csv', 'tsv', 'sheet', 'jsonl', 'json', 'parquet', 'arrow', 'folder', 'brat', 'text', 'label-text', 'swag', 'codah', 'conll'] | None
    'csv, tsv, sheet, jsonl, json, parquet, arrow, folder, brat, text, label-text, swag, codah or conll. If not set: by suffix or content.'
    sheet: str | None
    'Sheet of a spreadsheet. If not set: the first that is not hidden.'
    header: bool | None
    'Read column names from the first row of csv or tsv, or not. If not set: tidybert looks for the columns there.'
    delimiter: str | None
    'Character between cells, or tab, comma, semicolon or pipe. If not set: comma in csv, tab in tsv, or what every row shows.'
    quoting: bool | None
    'Read "..." as one cell that may contain delimiters and line ends, or as plain text. If not set: plain text only between tabs.'
    encoding: str | None
    'Encoding of the file. If not set: utf-8, or what the file shows: utf-16 by its byte-order mark, cp1252 by its letters.'
    skip_rows: int
    'Pass over the first N lines of csv or tsv, such as a title.'
    follow_links: bool
    'Also read what links in a folder of texts name outside of it.'
    skip_bad_rows: bool
    'Skip rows that cannot be read, and report which.'
    device: str
    'Device to compute on: auto, cpu, cuda or cuda:N.'
    allow_pickle: bool
    'Also read weights from a pickle; nothing else in it is loaded.'
    precision: Literal['auto', 'float32', 'bfloat16', 'float16', 'int8']
    'Compute in float32, bfloat16, int8 (CPU) or float16 (CUDA). auto: bfloat16 after training in it where the device is made for it, else float32.'
    max_seq_length: int | None
    'Most tokens of a text; a longer one is cut. If not set: as in training.'
    min_score: float | None
    'Give null as the label of a class whose score is below S, and entities from S on. If not set: as in training.'
    resamples: int
    'Samples to draw for the intervals of report; fewer take less time.'
    texts: Any
    'For pairs and embed, search among the texts of FILE too.'

@dataclass(eq=False, repr=False, kw_only=True)
class TrainingParameters:
    descriptions: Any = None
    'A file of labels and texts that say what each class means.'
    device: str = 'auto'
    'Device to compute on: auto, cpu, cuda or cuda:N.'
    max_seq_length: int | None = None
    'Most tokens of a sequence. If not set: 384 for answer, 128 for other tasks.'
    vocab: str | Path | None = None
    "Take this model's vocabulary, where MODEL is a size such as mini."
    new_head: bool = False
    'Reinitialise the head even if MODEL already has one.'
    num_layers: int | None = None
    "Begin with N of MODEL's layers, evenly spread. If not set: all."
    teacher: str | Path | None = None
    "Learn this finished RUN's answers too, of the same task and labels; for embed a MODEL's vectors, or a regress RUN's scores."
    class_names: bool | None = None
    'For classify, begin a new head with the names of the classes as further examples. If not set: by the number of labels.'
    teacher_weight: float = 0.9
    "Share of the teacher's answers in the loss of a labelled example, above 0 and up to 1."
    teacher_temperature: float = 2.0
    'Divide logits of teacher and student by this before they are compared.'
    doc_stride: int | None = None
    "Tokens from the start of one window over a long text to the start of the next, as in Google's code."
    num_train_epochs: float | None = None
    'Passes over the training data; 0 trains nothing after head_start. If not set: 3, or by the number of labels.'
    max_steps: int | None = None
    'Stop after this many steps, even before num_train_epochs.'
    train_batch_size: int | None = None
    'Examples in each update of the weights. If not set: 32, or 8 for up to 3,000 pairs, scores, choices, tags or questions.'
    tokens_per_batch: int = 4096
    'Split a step into parts of at most this many tokens and sum their gradients, to bound memory.'
    learning_rate: float | None = None
    'Highest learning rate. If not set: 5e-5 for widths of 512 and more; below 1e-4, and 3e-4 to tag or answer.'
    warmup_proportion: float = 0.1
    'Fraction of the steps over which the learning rate rises from 0; it then falls linearly to 0.'
    head_start: Literal['probe', 'contrastive', 'random'] | None = None
    'Begin a new head as a fit to the encoder (probe), after contrastive training (contrastive), or random. If not set: by the labels.'
    pooling: Literal['cls', 'mean'] | None = None
    'Read [CLS] (cls) or the mean of all tokens (mean), which transformers cannot open. If not set: as MODEL, or by the labels.'
    dropout: float | None = None
    'Dropout in the encoder and before the head, 0 or above and below 1. If not set: as MODEL.'
    weight_decay: float = 0.01
    'Decoupled weight decay, on weight matrices and embeddings but not on biases and LayerNorm.'
    adam_beta1: float = 0.9
    "AdamW's decay rate of the mean gradient."
    adam_beta2: float = 0.999
    "AdamW's decay rate of the mean squared gradient."
    adam_epsilon: float = 1e-06
    "AdamW's guard against division by zero."
    max_grad_norm: float = 1.0
    'Scale gradients down to at most this norm.'
    seed: int = 42
    'Random seed for head weights, example order and dropout.'
    eval_steps: int | None = None
    'Evaluate on dev after every N steps. If not set: at the end of each epoch.'
    early_stopping_patience: int | None = None
    'Stop after this many evaluations without a better one. If not set: never.'
    freeze_layers: int = 0
    'Do not train the embeddings and this many of the lowest layers.'
    freeze_embeddings: bool = False
    'Do not train the embeddings.'
    precision: Literal['auto', 'float32', 'bfloat16'] = 'auto'
    'Compute in float32 or bfloat16 (autocast); auto is bfloat16 where the device suits it.'
