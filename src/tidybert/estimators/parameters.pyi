"""Written by python tests/stubs.py --write, from the options of tidybert.estimators.parameters."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

@dataclass(eq=False, repr=False, kw_only=True)
class TrainingParameters:
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
    'Compute in float32 or bfloat16 (autocast); auto is bfloat16 on CUDA and float32 elsewhere.'
