"""Write the files of sentence-transformers, in the form that every version reads.

text-embeddings-inference and vLLM look for the same names: modules.json with
sentence_transformers.models.Pooling, and 1_Pooling/config.json with a boolean for each mode.
"""

from pathlib import Path
from typing import Final

from tidybert.checkpoints.sentence_form import POOLING_KEYS, Dense, SentenceForm
from tidybert.checkpoints.tensor_files import write_tensors
from tidybert.storage.atomic_files import atomic_write_json
from tidybert.storage.model_files import CONFIG_FILE, MODULES_FILE, PROMPTS_FILE, SENTENCE_FILE
from tidybert.storage.own_files import make_directory

_PACKAGE: Final = "sentence_transformers.models."


def write_sentence_form(directory: Path, form: SentenceForm, width: int) -> None:
    """Write modules.json and what it names into a MODEL directory that is being written.

    ``width`` is the encoder's hidden_size.
    """
    steps = ["Pooling", *("Dense" for _ in form.dense), *(["Normalize"] if form.normalize else [])]
    folders = ["", *(f"{number}_{step}" for number, step in enumerate(steps, start=1))]
    modules = [
        {"idx": number, "name": str(number), "path": folder, "type": f"{_PACKAGE}{step}"}
        for number, (folder, step) in enumerate(zip(folders, ["Transformer", *steps], strict=True))
    ]
    atomic_write_json(directory / MODULES_FILE, modules)
    atomic_write_json(
        directory / SENTENCE_FILE,
        {"max_seq_length": form.max_seq_length, "do_lower_case": False},
    )
    settings = {
        "prompts": form.prompts,
        "default_prompt_name": form.default_prompt_name,
        "similarity_fn_name": "cosine",
        "truncate_dim": form.truncate_dim,
    }
    atomic_write_json(directory / PROMPTS_FILE, settings)
    modes = {key: mode == form.pooling for mode, key in POOLING_KEYS.items()}
    for folder in folders[1:]:
        make_directory(directory / folder)
    pooling = {"word_embedding_dimension": width, **modes, "include_prompt": True}
    atomic_write_json(directory / folders[1] / CONFIG_FILE, pooling)
    for folder, dense in zip(folders[2:], form.dense, strict=False):
        _write_dense(directory / folder, dense)


def _write_dense(folder: Path, dense: Dense) -> None:
    values = {
        "in_features": dense.linear.in_features,
        "out_features": dense.linear.out_features,
        "bias": dense.linear.bias is not None,
        "activation_function": dense.activation_name,
    }
    atomic_write_json(folder / CONFIG_FILE, values)
    write_tensors(folder, dense.state_dict())
