"""BERT's relatives through the house: trained for each task, and opened by transformers."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tests.conftest import ANIMALS, COLOURS
from tests.relatives import HEADS, RELATIVES, ROBERTAS, saved

from tidybert import Embedder, Explainer, MaskFiller, Predictor
from tidybert.checkpoints.converting import convert
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.cli.main import run
from tidybert.errors import ConfigError, DataError, UsageError
from tidybert.finetuning.head_start import keep_layers
from tidybert.modeling.architectures import build_encoder
from tidybert.system.reporter import SILENT

PAIRS = [("the red cat", "a dog", "yes"), ("a cow", "the old hen saw", "no")] * 8
FAST = ["--max-steps", "2", "--train-batch-size", "4", "--max-seq-length", "24"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes a MODEL of a kind with its masked-LM head, as transformers saves it."""
    kept: dict[str, Path] = {}

    def make(kind: str) -> Path:
        if kind not in kept:
            kept[kind] = tmp_path_factory.mktemp(kind) / kind
            saved(kept[kind], kind, "ForMaskedLM")
        return kept[kind]

    return make


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of examples for each task."""
    folder = tmp_path_factory.mktemp("files")
    context = "the red cat saw a cow"
    question = {"id": "q", "question": "a dog", "answers": [{"text": "cat", "answer_start": 8}]}
    asked = [{"context": context, "qas": [{**question, "id": f"q{at}"}]} for at in range(8)]
    choices = [
        {"question": "the cat", "choices": ["red", "a dog"], "label": 1},
        {"question": "the old", "choices": ["hen", "cow"], "label": 0},
    ]
    texts = {
        "classify": "text\tpair\tlabel\n" + "".join("\t".join(each) + "\n" for each in PAIRS),
        "tag": "red B-X\ncat O\n\na O\ncow B-X\n\n" * 6,
        "answer": json.dumps({"version": "1", "data": [{"title": "t", "paragraphs": asked}]}),
        "choose": "".join(json.dumps(each) + "\n" for each in choices * 6),
        "embed": "anchor\tpositive\nthe red cat\ta cat\na dog\tthe old dog\nhen\ta hen\n" * 3,
    }
    suffixes = {"tag": "conll", "answer": "json", "choose": "jsonl"}
    found = {}
    for task, text in texts.items():
        found[task] = folder / f"{task}.{suffixes.get(task, 'tsv')}"
        found[task].write_text(text)
    return found


@pytest.fixture(scope="module")
def trained(
    model: Callable[[str], Path], files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Makes a RUN of a task from a MODEL of a kind."""
    kept: dict[tuple[str, str], Path] = {}

    def make(kind: str, task: str, *more: str) -> Path:
        if (kind, task, *more) not in kept:
            out = tmp_path_factory.mktemp(task) / "run"
            data = str(files[task])
            lengths = {"answer": ["--max-query-length", "6"], "classify": ["--text-pair", "pair"]}
            given = ["finetune", task, str(model(kind)), "--train", data, "--dev", data]
            assert run([*given, "--out", str(out), *FAST, *lengths.get(task, []), *more]) == 0
            kept[(kind, task, *more)] = out
        return kept[(kind, task, *more)]

    return make


def opened(directory: Path, kind: str) -> Any:
    """The RUN as transformers opens it, by the class that config.json names."""
    (name,) = json.loads((directory / "config.json").read_text())["architectures"]
    assert name.startswith(RELATIVES[kind][0])
    found = getattr(transformers, name).from_pretrained(directory, attn_implementation="eager")
    return found.eval()


@pytest.mark.parametrize("kind", RELATIVES)
def test_a_run_on_pairs_is_transformers_too(kind: str, trained: Callable[..., Path]) -> None:
    directory = trained(kind, "classify")

    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    given = tokenizer("the red cat", "a dog", return_tensors="pt")
    with torch.no_grad():
        expected = opened(directory, kind)(**given, output_attentions=True)

    # A model without segments gets none from its own tokenizer.
    assert ("token_type_ids" in given) <= (kind == "electra")
    predictor: Predictor[Any] = Predictor(directory)
    ids = predictor.tokenizer.encode("the red cat", "a dog").input_ids
    assert ids == given.input_ids[0].tolist()
    (found,) = predictor.predict(["the red cat"], ["a dog"])
    task: Any = predictor.task
    scores = (expected.logits[0] / task.temperature).softmax(0).tolist()
    assert [*found["scores"].values()] == pytest.approx(scores, abs=1e-5)
    probs = Explainer(directory).attention("the red cat", "a dog").probs
    np.testing.assert_allclose(probs, torch.cat(expected.attentions).numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "task"),
    [
        *[("roberta", "tag"), ("roberta", "answer"), ("camembert", "choose")],
        *[("distilbert", "answer"), ("distilbert", "choose"), ("electra", "choose")],
        *[("modernbert", "tag"), ("modernbert", "answer"), ("modernbert", "choose")],
    ],
)
def test_another_head_is_transformers_too(
    kind: str, task: str, trained: Callable[..., Path]
) -> None:
    directory = trained(kind, task)
    predictor: Predictor[Any] = Predictor(directory)
    encoding = predictor.tokenizer.encode("the red cat", None if task == "tag" else "a dog")
    ids, types = torch.tensor([encoding.input_ids]), torch.tensor([encoding.token_type_ids])
    if task == "choose":
        ids, types = ids[None], types[None]
    with torch.no_grad():
        more = {"token_type_ids": types} if kind == "electra" else {}
        expected = opened(directory, kind)(ids, **more)
        found = predictor.model(ids, None, types)

    if task == "answer":
        found = found.unbind(-1)
        expected = expected.start_logits, expected.end_logits
    else:
        expected = expected.logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    if task == "answer":
        (answer,) = predictor.predict(["a dog"], ["the red cat saw a cow"])
        assert answer["answer"] in "the red cat saw a cow"


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "distilbert", "electra", "modernbert"])
def test_a_model_fills_masks_and_makes_vectors(kind: str, model: Callable[[str], Path]) -> None:
    directory, mask = model(kind), "<mask>" if kind in ROBERTAS else "[MASK]"
    filler = MaskFiller(directory)
    text = f"the {mask} cat"
    (found,) = filler.fill([text], top_k=3)
    ids = torch.tensor([filler.tokenizer.encode(text, special_tokens_in_text=True).input_ids])
    at = ids[0].tolist().index(filler.tokenizer.mask_token_id)
    with torch.no_grad():
        logits = opened(directory, kind)(ids).logits[0, at]
    best = logits.softmax(-1).topk(3)
    words = [each["probability"] for each in found["masks"][0]["words"]]
    assert words == pytest.approx(best.values.tolist(), abs=1e-6)
    with pytest.raises(DataError, match=f"has no {re.escape(mask)}: write it, spelled so"):
        filler.fill(["the cat"])
    assert Explainer(directory).cloze(text).masks

    vectors = Embedder(directory).embed(["the red cat"])
    ids = torch.tensor([filler.tokenizer.encode("the red cat").input_ids])
    with torch.no_grad():
        states = opened(directory, kind).base_model(ids).last_hidden_state
    np.testing.assert_allclose(vectors, states.mean(1).numpy(), atol=1e-5)


@pytest.mark.parametrize("kind", ["xlm-roberta", "modernbert"])
def test_a_model_learns_more_masked_words(
    kind: str, model: Callable[[str], Path], tmp_path: Path
) -> None:
    texts = [f"the {one} {other} saw a dog. we saw it." for one in COLOURS for other in ANIMALS]
    (tmp_path / "text.txt").write_text("\n\n".join(texts))
    corpus, out = str(tmp_path / "corpus"), str(tmp_path / "out")
    build = ["build-corpus", str(tmp_path / "text.txt"), "--vocab", str(model(kind))]
    assert run([*build, "--out", corpus, "--held-out", "0.5"]) == 0
    given = ["pretrain", str(model(kind)), "--data", corpus, "--out", out]
    given += ["--max-seq-length", "16", "--max-steps", "1", "--long-share", "0"]
    assert run(given) == 2
    assert run([*given, "--objective", "mlm"]) == 0
    before, after = (opened(each, kind).state_dict() for each in (model(kind), Path(out)))
    assert before.keys() == after.keys()
    assert not torch.equal(*(next(iter(each.values())) for each in (before, after)))


@pytest.mark.parametrize("kind", ["distilbert", "electra"])
def test_a_vocabulary_of_wordpieces_grows(
    kind: str, model: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(f"covid {one}" for one in COLOURS * 5))
    given = ["extend-vocab", str(model(kind)), str(tmp_path / "text.txt"), "--add", "2"]
    assert run([*given, "--held-out", "0", "--out", str(tmp_path / "out")]) == 0
    before, after = (opened(each, kind) for each in (model(kind), tmp_path / "out"))
    words = after.get_input_embeddings().weight
    assert len(words) > before.config.vocab_size
    assert torch.equal(words[: before.config.vocab_size], before.get_input_embeddings().weight)


def test_a_student_of_another_family_learns_from_a_teacher_of_its_vocabulary(
    trained: Callable[..., Path],
) -> None:
    teacher = trained("electra", "classify")
    assert trained("distilbert", "classify", "--teacher", str(teacher), "--seed", "3")


@pytest.mark.parametrize("kind", RELATIVES)
def test_every_head_that_is_written_back_is_what_it_was(kind: str, tmp_path: Path) -> None:
    for head in HEADS[1:]:
        theirs = saved(tmp_path / head, kind, head)
        convert(ModelDirectory(tmp_path / head), tmp_path / "back" / head, "huggingface")
        again = opened(tmp_path / "back" / head, kind)
        assert type(again) is type(theirs)
        ids = torch.tensor([[2, 9, 10, 13, 8, 11, 3]])
        given = ids[None] if head == "ForMultipleChoice" else ids
        with torch.no_grad():
            found, expected = again(given), theirs(given)
        for name in expected.keys() & {"logits", "start_logits", "end_logits"}:
            torch.testing.assert_close(found[name], expected[name], atol=1e-6, rtol=0)


def test_what_a_relative_cannot_do_says_what_it_needs(
    trained: Callable[..., Path], model: Callable[[str], Path], tmp_path: Path
) -> None:
    modern = ModelDirectory(trained("modernbert", "classify"))
    with pytest.raises(UsageError, match="the form of BERT's original code"):
        convert(modern, tmp_path / "tf", "tensorflow")
    # Its head has a LayerNorm, for which sentence-transformers has no module.
    form, head = "sentence-transformers", "the classification head"
    assert head in convert(modern, tmp_path / "modern", form).lost
    roberta = ModelDirectory(trained("roberta", "classify"))
    assert head not in convert(roberta, tmp_path / "roberta", form).lost
    with pytest.raises(ConfigError, match="a head on the mean of all tokens needs a BERT"):
        roberta.config.with_pooling("mean")
    assert modern.config.with_pooling("mean").pooling == "mean"
    with pytest.raises(UsageError, match="none can be left out"):
        keep_layers(build_encoder(modern.config), 2, SILENT)
