"""Written by python tests/stubs.py --write, from the options of tidybert.inference.keywords."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

class OpeningKeywords(TypedDict, total=False):
    device: str
    'Device to compute on: auto, cpu, cuda or cuda:N.'
    allow_pickle: bool
    'Also read weights from a pickle; nothing else in it is loaded.'
    precision: Literal['auto', 'float32', 'bfloat16', 'float16', 'int8']
    'Compute in float32, bfloat16, int8 (CPU) or float16 (CUDA). auto: bfloat16 after training in it where the device is made for it, else float32.'

class PairKeywords(TypedDict, total=False):
    device: str
    'Device to compute on: auto, cpu, cuda or cuda:N.'
    allow_pickle: bool
    'Also read weights from a pickle; nothing else in it is loaded.'
    precision: Literal['auto', 'float32', 'bfloat16', 'float16', 'int8']
    'Compute in float32, bfloat16, int8 (CPU) or float16 (CUDA). auto: bfloat16 after training in it where the device is made for it, else float32.'
    max_seq_length: int | None
    'Most tokens of a text; a longer one is cut. If not set: as many as the model allows.'

class PredictorKeywords(TypedDict, total=False):
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

class EmbedderKeywords(TypedDict, total=False):
    device: str
    'Device to compute on: auto, cpu, cuda or cuda:N.'
    allow_pickle: bool
    'Also read weights from a pickle; nothing else in it is loaded.'
    precision: Literal['auto', 'float32', 'bfloat16', 'float16', 'int8']
    'Compute in float32, bfloat16, int8 (CPU) or float16 (CUDA). auto: bfloat16 after training in it where the device is made for it, else float32.'
    pooling: Literal['mean', 'cls', 'max'] | None
    "Pool the token vectors of a text: mean, max or cls, which is [CLS]. If not set: as MODEL's modules.json says, else mean."
    max_seq_length: int | None
    "Most tokens of a text; a longer one is cut. If not set: as MODEL's sentence_bert_config.json says, else as many as the model allows."
    layers: str | int | Sequence[int]
    'Layers to take: -1 is the last, 0 the embeddings, -2,-1 a list, last4 the last four, and all every layer.'
    combine: Literal['concat', 'sum', 'mean']
    'Make one vector of several layers by concat, sum or mean.'
    normalize: bool | None
    'Scale each vector to length 1, or leave it. If not set: as MODEL says, else leave it.'
    prompt: str | None
    'Put this before each text. If not set: as prompt_name says.'
    prompt_name: str | None
    "Put MODEL's prompt of this name before each text. If not set: MODEL's default prompt, if it has one."
    truncate_dim: int | None
    'Keep the first D numbers of each vector, of a Matryoshka model. If not set: as MODEL says, else all.'

@dataclass(eq=False, repr=False, kw_only=True)
class VectorParameters:
    device: str = 'auto'
    'Device to compute on: auto, cpu, cuda or cuda:N.'
    pooling: Literal['mean', 'cls', 'max'] | None = None
    "Pool the token vectors of a text: mean, max or cls, which is [CLS]. If not set: as MODEL's modules.json says, else mean."
    max_seq_length: int | None = None
    "Most tokens of a text; a longer one is cut. If not set: as MODEL's sentence_bert_config.json says, else as many as the model allows."
    layers: str | int | Sequence[int] = -1
    'Layers to take: -1 is the last, 0 the embeddings, -2,-1 a list, last4 the last four, and all every layer.'
    combine: Literal['concat', 'sum', 'mean'] = 'concat'
    'Make one vector of several layers by concat, sum or mean.'
    normalize: bool | None = None
    'Scale each vector to length 1, or leave it. If not set: as MODEL says, else leave it.'
    prompt: str | None = None
    'Put this before each text. If not set: as prompt_name says.'
    prompt_name: str | None = None
    "Put MODEL's prompt of this name before each text. If not set: MODEL's default prompt, if it has one."
    truncate_dim: int | None = None
    'Keep the first D numbers of each vector, of a Matryoshka model. If not set: as MODEL says, else all.'
