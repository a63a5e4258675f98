"""Writes directories of sentence-transformers with modules that no training gives."""

from pathlib import Path

from tidybert.checkpoints.model_directory import model_description
from tidybert.checkpoints.sentence_form import SentenceForm, write_sentence_form
from tidybert.checkpoints.tensor_files import write_tensors
from tidybert.checkpoints.weights import to_huggingface
from tidybert.modeling.bert import BertModel
from tidybert.storage.atomic_files import atomic_directory, atomic_write_json
from tidybert.storage.model_files import CONFIG_FILE
from tidybert.tokenization import BertTokenizer


def write_sentence_transformers(
    destination: str | Path,
    encoder: BertModel,
    tokenizer: BertTokenizer,
    form: SentenceForm,
) -> None:
    """An encoder and what follows it, as ``tidybert convert`` writes them."""
    # transformers knows no encoder of another model_type; the form says how states are pooled.
    config = encoder.config.with_pooling("cls")
    state = encoder.state_dict()
    with atomic_directory(destination) as partial:
        atomic_write_json(partial / CONFIG_FILE, model_description(config, "BertModel"))
        length = form.max_seq_length or config.max_position_embeddings
        tokenizer.save(partial, model_max_length=length)
        write_tensors(partial, to_huggingface(state, config))
        write_sentence_form(partial, form, config.hidden_size)
