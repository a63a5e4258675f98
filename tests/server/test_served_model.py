"""A model that is served reads as much of a text as the commands do."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidybert import Embedder
from tidybert.inference.forward import encoding_features
from tidybert.inference.loading import OpenedModel
from tidybert.inference.pretraining_heads import MaskFiller
from tidybert.modeling.kernels.linear import largest_weight
from tidybert.server.served_model import ServedModel


def test_it_embeds_as_much_of_a_text_as_the_command(
    pretrained: Callable[[str], tuple[Path, Any]], tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(pretrained("BertForMaskedLM")[0], model)
    (model / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 8}))
    text = "the cat " * 10

    served = ServedModel("model", OpenedModel(model, device="cpu"))
    ids = served.tokenizer.encode_batch([text])[0].tolist()
    features = [*served.embedding_features([text]), *served.embedding_features([ids])]

    assert served.embedding_length == Embedder(model).max_seq_length == 8
    assert served.max_seq_length == served.max_positions > 8
    assert [len(one.input_ids) for one in features] == [8, 8]
    assert [one.truncated for one in features] == [True, True]


@pytest.mark.skipif(not largest_weight(), reason="no exact 8-bit products here")
def test_int8_answers_as_the_commands_do(served: dict[str, str]) -> None:
    """A MODEL's heads share one encoder, in int8 too."""
    texts, masked = ["the red cat", "a dog"], "the red [MASK] was near"
    model = ServedModel("base", OpenedModel(served["base"], device="cpu", precision="int8"))
    filler = MaskFiller(served["base"], device="cpu", precision="int8")

    vectors = model.lanes["embed:mean"].run(model.embedding_features(texts))
    encoding = filler.encoded(masked, "text")
    (words,) = model.lanes["fill-mask"].run(encoding_features([encoding]))

    assert np.array_equal(
        np.concatenate(vectors), Embedder(served["base"], precision="int8").embed(texts)
    )
    assert model.mask_filler is not None
    assert model.mask_filler.model.bert.encoder is model.encoder.encoder
    assert model.mask_filler.model.bert.embeddings is model.encoder.embeddings
    assert filler.fill([masked], top_k=24) == [filler.answer(masked, encoding, words, None, 24)]
    assert model.precision == "int8"
