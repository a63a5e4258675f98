"""What each head answers to a few texts, in a process that may have no PyTorch; loads no torch."""

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

LONG: Final = "we saw the old hen near a new blue cow under the white dog and the red cat"
TEXTS: Final = ["the red cat", "a dog", LONG, "cat"]
SECONDS: Final[dict[str, Any]] = {
    "regress": TEXTS[::-1],
    "choose": [["a dog", "the cow", "hen"], ["cat", "a white dog"], ["we saw", "the"], ["a", "b"]],
    "answer": [LONG] * 4,
}


def answers(model: str | Path, **options: Any) -> list[Any]:
    """Those of the head that a directory has."""
    from tidybert.inference.embedding import Embedder
    from tidybert.inference.loading import OpenedModel
    from tidybert.inference.predictor import Predictor
    from tidybert.inference.pretraining_heads import MaskFiller, NextSentencePredictor

    opened = OpenedModel(model, **options)
    if opened.is_finished:
        predictor = Predictor[Any](model, **options)
        seconds = SECONDS.get(predictor.task.name)
        return [*predictor.predict(TEXTS, seconds), predictor.facts()["precision"]]
    found: list[Any] = []
    if opened.head("BertForMaskedLM") is not None:
        masked = [f"{text} {opened.tokenizer.mask_token} the" for text in TEXTS]
        found = MaskFiller(model, **options).fill(masked)
    if opened.head("BertForNextSentencePrediction") is not None:
        found += NextSentencePredictor(model, **options).predict(TEXTS, TEXTS[::-1])
    return found or Embedder(model, **options).embed(TEXTS).tolist()


def shown(*words: Any) -> str:
    """What a command prints; an error is what it says."""
    from tidybert.cli.main import run

    with redirect_stdout(io.StringIO()) as out:
        status = run([str(each) for each in words])
    assert status == 0, words
    return out.getvalue()


def served(models: dict[str, str], asked: list[tuple[str, Any]]) -> list[Any]:
    """What a server answers to requests: paths with bodies."""
    from starlette.testclient import TestClient

    from tidybert.server.app import make_app
    from tidybert.server.engine import Engine
    from tidybert.server.settings import ServerSettings

    engine = Engine(ServerSettings(models=models))
    engine.open()
    engine.start()
    try:
        client = TestClient(make_app(engine), base_url="http://localhost")
        return [client.post(path, json=body).json() for path, body in asked] + [
            client.get("/").text
        ]
    finally:
        engine.close()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    found = {
        "answers": [answers(each) for each in given["models"]],
        "commands": [shown(*words) for words in given["commands"]],
        "served": served(given["served"], given["asked"]),
    }
    print(json.dumps(found))
