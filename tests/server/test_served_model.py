"""A model that is served reads as much of a text as the commands do."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidybert import Embedder
from tidybert.server.served_model import ServedModel


def test_it_embeds_as_much_of_a_text_as_the_command(
    pretrained: Callable[[str], tuple[Path, Any]], tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(pretrained("BertForMaskedLM")[0], model)
    (model / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 8}))
    text = "the cat " * 10

    served = ServedModel("model", model, device="cpu")
    ids = served.tokenizer.encode_batch([text])[0].tolist()
    features = [*served.embedding_features([text]), *served.embedding_features([ids])]

    assert served.embedding_length == Embedder(model).max_seq_length == 8
    assert served.max_seq_length == served.max_positions > 8
    assert [len(one.input_ids) for one in features] == [8, 8]
    assert [one.truncated for one in features] == [True, True]
