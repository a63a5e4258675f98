"""The names of all files and folders of a MODEL and of a RUN.

A MODEL is a Hugging Face BERT directory, with tidybert.json beside the files of theirs.  A finished
RUN is a MODEL that also holds how it was trained.
"""

import re
from pathlib import Path
from typing import Final

# A MODEL, in Hugging Face's names.
CONFIG_FILE: Final = "config.json"
WEIGHTS_FILE: Final = "model.safetensors"
PICKLE_FILE: Final = "pytorch_model.bin"
INDEX_SUFFIX: Final = ".index.json"
"""After the name of weights that are split over several files."""
VOCABULARY_FILE: Final = "vocab.txt"
TOKENIZER_FILE: Final = "tokenizer.json"
TOKENIZER_CONFIG_FILE: Final = "tokenizer_config.json"
ADDED_TOKENS_FILE: Final = "added_tokens.json"
SPECIAL_TOKENS_FILE: Final = "special_tokens_map.json"
"""Both of transformers 4; later versions write their content into tokenizer_config.json."""
TENSORFLOW_CONFIG_FILE: Final = "bert_config.json"
"""Of the original code, beside NAME.index and its data files."""
TENSORFLOW_INDEX: Final = "bert_model.ckpt.index"
# Of sentence-transformers.
SENTENCE_FILE: Final = "sentence_bert_config.json"
"""The most tokens of a text, which config.json does not say."""
MODULES_FILE: Final = "modules.json"
"""What follows the encoder: each module's class, and its folder."""
PROMPTS_FILE: Final = "config_sentence_transformers.json"
"""Prompts, and the numbers of a vector that are kept."""
# An export: what optimum, sentence-transformers and transformers.js look for.
ONNX_FOLDER: Final = "onnx"
ONNX_FILE: Final = "model.onnx"
ONNX_INT8_FILE: Final = "model_quantized.onnx"
METADATA_FILE: Final = "tidybert.json"
"""Ours: the task, its labels and settings, and the hashes of the other files."""

# Files that training adds at the root of a RUN.
ARGUMENTS_FILE: Final = "arguments.json"
RECORD: Final = "record"
"""The key of arguments.json whose content is no argument."""
METRICS_FILE: Final = "metrics.jsonl"
BAD_STEPS_FILE: Final = "bad_steps.jsonl"
CURVES_FILE: Final = "curves.svg"
TRIALS_FILE: Final = "trials.json"
TRIALS_FOLDER: Final = "trials"
TRAINING_TEXTS_FILE: Final = "training_texts.npy"
"""Hashes of the training texts, which tell whether a text had a part in training."""
CARD_FILE: Final = "README.md"
"""The model card."""
TENSORBOARD_FOLDER: Final = "tensorboard"
WANDB_FOLDER: Final = "wandb"
MLFLOW_FOLDER: Final = "mlruns"

# checkpoints/step-N/ and checkpoints/best/, each with WEIGHTS_FILE.
CHECKPOINTS_FOLDER: Final = "checkpoints"
BEST_FOLDER: Final = "best"
OPTIMIZER_FILE: Final = "optimizer.safetensors"
STATE_FILE: Final = "training_state.json"
KEPT_FILE: Final = "kept"
"""In a checkpoint that stays when the run is finished."""


def checkpoints_by_step(run: Path) -> dict[int, Path]:
    """The directories of a RUN's checkpoints by their steps, the last one last."""
    found = (run / CHECKPOINTS_FOLDER).glob("step-*")
    named = [path for path in found if re.fullmatch("step-[0-9]{1,15}", path.name)]
    return dict(sorted((int(path.name.removeprefix("step-")), path) for path in named))
