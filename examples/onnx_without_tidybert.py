"""Texts to answers from an ONNX export, with onnxruntime and tokenizers alone.

python onnx_without_tidybert.py DST TEXT...   where DST is from: tidybert convert RUN DST --to onnx
It prints the label of each text, or its labels, and the scores of all; or the vector that a model
of sentences gives it.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

folder, texts = Path(sys.argv[1]), sys.argv[2:]
config = json.loads((folder / "config.json").read_text("utf-8"))
labels, problem = config.get("id2label"), config.get("problem_type")
settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
own = folder / "tidybert.json"
known = json.loads(own.read_text("utf-8"))["settings"] if own.exists() else {}
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer.enable_truncation(settings["model_max_length"])
tokenizer.enable_padding()
session = onnxruntime.InferenceSession(folder / "onnx" / "model.onnx")
encodings = tokenizer.encode_batch(texts)
fields = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
inputs = {name: np.array([getattr(one, key) for one in encodings]) for name, key in fields.items()}
names = [output.name for output in session.get_outputs()]
found = dict(zip(names, session.run(names, inputs), strict=True))
rows = found["sentence_embedding"] if "sentence_embedding" in found else found["logits"]
for text, row in zip(texts, rows, strict=True):
    answer = {"text": text, "answer": row.tolist()}
    if labels:
        row = row / known.get("temperature", 1)
        one, any_number = np.exp(row - row.max()), 1 / (1 + np.exp(-row))
        scores = any_number if problem == "multi_label_classification" else one / one.sum()
        answer["scores"] = dict(zip(labels.values(), scores.tolist(), strict=True))
        answer["answer"] = labels[str(row.argmax())]
        if problem == "multi_label_classification":
            least = known.get("thresholds", {})
            found = answer["scores"].items()
            answer["answer"] = [name for name, score in found if score >= least.get(name, 0.5)]
    print(json.dumps(answer))
