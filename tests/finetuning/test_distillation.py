"""A student learns a teacher's answers: literal losses, every task, resume, and refusals."""

import json
import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import tidybert
from tidybert.cli import main as shell
from tidybert.configuration import BertConfig
from tidybert.data.batching import Batch, collate
from tidybert.data.features import Features
from tidybert.errors import DataError, TidyBertError, TrainingError, UsageError
from tidybert.files.text_examples import TextExample
from tidybert.finetuning.distillation import Distillation
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.head_start import keep_layers
from tidybert.inference.predictor import Predictor
from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.bert import BertModel
from tidybert.system.reporter import SILENT, Reporter
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.multiple_choice import MultipleChoice
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.regression import Regression
from tidybert.tasks.tags.tag_files import TaggedExample
from tidybert.tasks.tags.tagging import Tagging, WordPlaces
from tidybert.tasks.task import AnyTask, Task
from tidybert.tokenization import BertTokenizer
from tidybert.training.interruption import TrainingInterrupted
from tidybert.training.reports import StepReport

Examples = Callable[..., list[TextExample]]
Toy = Callable[..., FinetunedModel]


def a_batch(sizes: list[int], labels: list[Any], taught: list[Any], **given: Any) -> Batch:
    """A batch of features of these sizes in tokens."""
    return collate(
        [
            Features(
                np.full(length, 7, np.int32),
                np.zeros(length, np.uint8),
                length,
                label=label,
                taught=None if each is None else np.array(each, np.float32),
                **{name: values[number] for name, values in given.items()},
            )
            for number, (length, label, each) in enumerate(zip(sizes, labels, taught, strict=True))
        ]
    )


def kl(ours: Any, theirs: Any, temperature: float = 2.0) -> float:
    """torch's KLDivLoss of one row of logits at a temperature, times its square."""
    ours, theirs = (torch.tensor(each) / temperature for each in (ours, theirs))
    loss = torch.nn.KLDivLoss(reduction="sum", log_target=True)
    return float(loss(ours.log_softmax(0), theirs.log_softmax(0))) * temperature**2


def imitated(task: AnyTask, outputs: Any, batch: Batch) -> list[float]:
    taught = torch.from_numpy(np.concatenate([one.taught for one in batch.features]))
    found: list[float] = task.imitation_losses(torch.tensor(outputs), taught, batch, 2.0).tolist()
    return found


def test_the_loss_of_classes_is_a_literal_number() -> None:
    """By hand: at 2, softmax(0, 2 ln 3) is (1/4, 3/4) and softmax(0, 0) is (1/2, 1/2)."""
    batch = a_batch([2], [0], [[[0.0, 2 * math.log(3)]]])
    expected = 4 * (0.25 * math.log(0.5) + 0.75 * math.log(1.5))

    (found,) = imitated(Classification("ab"), [[0.0, 0.0]], batch)

    assert found == pytest.approx(expected, rel=1e-6)
    assert imitated(Classification("ab"), [[1.0, 1 + 2 * math.log(3)]], batch) == [
        pytest.approx(0.0, abs=1e-6)
    ]


def test_the_losses_of_every_task_are_those_of_torch() -> None:
    logits = [[0.5, -1.0, 2.0], [1.5, 0.0, -0.5]]
    theirs = [[[1.0, 1.0, 0.0]], [[-2.0, 0.5, 3.0]]]
    batch = a_batch([2, 3], [0, 1], theirs)
    expected = [kl(ours, each) for ours, (each,) in zip(logits, theirs, strict=True)]
    assert imitated(Classification("abc"), logits, batch) == pytest.approx(expected, rel=1e-5)

    # Each label of a set is a choice between its logit and 0.
    expected = [
        sum(kl([a, 0.0], [b, 0.0]) for a, b in zip(ours, each, strict=True)) / 3
        for ours, (each,) in zip(logits, theirs, strict=True)
    ]
    task: AnyTask = MultiLabelClassification("abc")
    assert imitated(task, logits, batch) == pytest.approx(expected, rel=1e-5)

    batch = a_batch([2, 3], [0.5, 1.0], [[[1.5]], [[0.0]]])
    assert imitated(Regression(), [[1.0], [3.0]], batch) == [0.25, 9.0]

    # Three choices and two: each question has a softmax of its own.
    batch = a_batch([6, 4], [0, 1], [[1.0, 0.0, 2.0], [0.5, -0.5]], lengths=[(2, 2, 2), (2, 2)])
    expected = [kl([0.0, 1.0, 0.0], [1.0, 0.0, 2.0]), kl([3.0, 1.0], [0.5, -0.5])]
    found = imitated(MultipleChoice(), [0.0, 1.0, 0.0, 3.0, 1.0], batch)
    assert found == pytest.approx(expected, rel=1e-5)

    # Starts and ends over the tokens of windows of two lengths.
    theirs = [[[1.0, 0.0], [2.0, 5.0]], [[0.0, 1.0], [0.5, 0.0], [-1.0, 3.0]]]
    ours = [[0.0, 0.0], [1.0, 2.0], [2.0, 0.0], [0.0, 4.0], [1.0, 1.0]]
    batch = a_batch([2, 3], [(0, 1), (0, 0)], theirs)
    parts = [ours[:2], ours[2:]]
    expected = [
        sum(kl([r[at] for r in a], [r[at] for r in b]) for at in (0, 1)) / 2
        for a, b in zip(parts, theirs, strict=True)
    ]
    assert imitated(QuestionAnswering(), ours, batch) == pytest.approx(expected, rel=1e-5)

    # Two words and one; a sentence's loss is the mean of its words'.
    places = [WordPlaces(np.arange(n), np.arange(n) + 1, 0) for n in (2, 1)]
    batch = a_batch([4, 3], [(0, 1), (1,)], [[[1.0, 0.0], [0.0, 2.0]], [[1.0, 1.0]]], place=places)
    ours = [[0.0, 0.0], [1.0, 2.0], [2.0, 0.0]]
    expected = [
        (kl([0.0, 0.0], [1.0, 0.0]) + kl([1.0, 2.0], [0.0, 2.0])) / 2,
        kl([2.0, 0.0], [1.0, 1.0]),
    ]
    assert imitated(Tagging(["A", "B"]), ours, batch) == pytest.approx(expected, rel=1e-5)


def test_labels_and_teacher_share_a_loss_and_texts_without_labels_have_the_teacher_alone() -> None:
    outputs = torch.tensor([[0.0, 1.0], [2.0, -1.0], [0.5, 0.5]], requires_grad=True)
    taught = [[[1.0, 0.0]], [[0.0, 0.0]], [[-1.0, 1.0]]]
    batch = a_batch([2, 2, 2], [1, None, 0], taught, weight=[1.0, 1.0, 3.0])
    apart = [kl(a, b) for a, (b,) in zip(outputs.tolist(), taught, strict=True)]
    hard = functional.cross_entropy(outputs, torch.tensor([1, 0, 0]), reduction="none").tolist()

    loss = Distillation(Classification("ab"), 0.75, 2.0).summed_loss(outputs, batch)
    loss.backward()  # type: ignore[no-untyped-call]

    expected = 0.75 * (apart[0] + 3 * apart[2]) + apart[1] + 0.25 * (hard[0] + 3 * hard[2])
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()
    # At a temperature of 1 the gradient is the softmax's less the teacher's.
    outputs.grad = None
    unlabelled = a_batch([2] * 3, [None] * 3, taught)
    Distillation(Classification("ab"), 0.75, 1.0).summed_loss(outputs, unlabelled).backward()  # type: ignore[no-untyped-call]
    theirs = torch.tensor(taught)[:, 0].softmax(1)
    torch.testing.assert_close(outputs.grad, outputs.detach().softmax(1) - theirs)


def test_padded_spans_have_finite_gradients() -> None:
    outputs = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), requires_grad=True)
    batch = a_batch([2, 3], [None, None], [np.ones((2, 2)), np.zeros((3, 2))])

    Distillation(QuestionAnswering(), 1.0, 2.0).summed_loss(outputs, batch).backward()  # type: ignore[no-untyped-call]

    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()


def test_the_layers_that_stay_are_evenly_spread(tiny_config: Callable[..., BertConfig]) -> None:
    network = BertModel(tiny_config(num_hidden_layers=6))
    layers = [*network.encoder.layers]

    config = keep_layers(network, 4, SILENT)

    assert [layers.index(each) for each in network.encoder.layers] == [0, 1, 3, 4]
    assert (config.num_hidden_layers, network.config) == (4, config)


def accuracy(model: FinetunedModel, examples: list[TextExample]) -> float:
    return float(tidybert.evaluate(model, examples)["accuracy"])


def test_a_tiny_student_learns_a_tiny_teacher_from_texts_without_labels(
    toy: Toy, toy_examples: Examples, tiny_run: Path, tmp_path: Path
) -> None:
    """Four labels say little; the teacher's answers to 160 texts say what it knows."""
    told: list[str] = []
    given = {"train": toy_examples(4), "dev": None, "num_layers": 1, "num_train_epochs": 8}
    test = toy_examples(100, seed=9)

    student = toy(
        **given,
        teacher=tiny_run,
        unlabelled=toy_examples(160, seed=5),
        run=tmp_path / "student",
        reporter=Reporter(note=told.append),
    )

    assert student.config.num_hidden_layers == 1
    assert accuracy(student, test) > max(0.9, accuracy(toy(**given), test) + 0.1)
    answered = next(line for line in told if line.startswith("the teacher"))
    assert "answered 164 sequences once; its outputs take 0.0 MiB" in answered
    record = json.loads((tmp_path / "student" / "arguments.json").read_text())["record"]
    assert record["num_unlabelled"] == 160
    assert record["teacher"]["run"] == str(tiny_run)
    assert record["teacher"]["sha256"] == Predictor(tiny_run).fingerprint
    card = (tmp_path / "student" / "README.md").read_text()
    assert f"It learned the answers of the teacher `{tiny_run.name}` (2 layers, accuracy " in card
    assert "| unlabelled | 160 |" in card
    # Transformers and tidybert read a model of one layer.
    assert Predictor(tmp_path / "student").predict(["red"]) == student.predict(["red"])


def test_fewer_layers_learn_the_states_of_every_second_layer_before_the_answers(
    toy: Toy, toy_examples: Examples, tiny_run: Path
) -> None:
    told: list[str] = []
    stages: list[tuple[str, int, int]] = []
    texts = toy_examples(4), toy_examples(28, seed=5)
    given: dict[str, Any] = {"model": tiny_run, "teacher": tiny_run, "train": texts[0], "dev": None}
    given |= {"max_steps": 1, "dropout": 0.0, "train_batch_size": 32}
    reporter = Reporter(stage=lambda *each: stages.append(each), note=told.append)
    teacher = FinetunedModel.of_run(tiny_run)
    features = teacher.task.features([*texts[0], *texts[1]], teacher.tokenizer, 128)
    with torch.inference_mode():
        rows = collate(features).rows
        states = encoder_of(teacher.model.eval())(rows, output_hidden_states=True).hidden_states

    toy(**given, num_layers=1, unlabelled=texts[1], reporter=reporter)

    # The student's layer is the teacher's first, and learns what the second makes of it.
    expected = float(functional.mse_loss(states[1], states[2]))
    name = "the teacher's states"
    assert stages[:2] == [(name, 0, 1), (f"{name}, loss {expected:.4f}", 1, 1)]
    line = next(line for line in told if line.startswith("the student's layers"))
    assert f"states from 32 examples: loss {expected:.3f} at first" in line
    toy(**given, num_layers=1, reporter=reporter)
    toy(**given, unlabelled=texts[1], reporter=reporter)
    assert sum(each.startswith(name) for each, _, _ in stages) == 2


def test_states_of_layers_that_do_not_divide_are_not_learned_and_that_is_said(
    toy: Toy, toy_examples: Examples, tiny_model: Path, tiny_run: Path, tmp_path: Path
) -> None:
    told: list[str] = []
    toy(num_layers=1, max_steps=1, run=tmp_path / "one")

    toy(
        model=tiny_model,
        num_layers=2,
        teacher=tmp_path / "one",
        unlabelled=toy_examples(4, seed=5),
        max_steps=1,
        reporter=Reporter(note=told.append),
    )

    (line,) = (line for line in told if "states are not learned" in line)
    assert "its layers are 1 of width" in line
    assert "the student's 2 of width" in line


def test_a_student_that_is_the_teacher_has_nothing_to_learn_in_any_order_of_the_labels(
    toy: Toy, tiny_run: Path
) -> None:
    losses: list[float] = []
    given = {"model": tiny_run, "teacher": tiny_run, "teacher_weight": 1.0, "dropout": 0.0}

    toy(
        **given,
        task=Classification(("colour", "animal")),
        max_steps=1,
        reporter=Reporter(step=lambda done: losses.append(done.loss)),
    )

    assert losses == [pytest.approx(0.0, abs=1e-6)]


def test_a_stopped_student_goes_on_to_the_same_bits_with_the_same_teacher_alone(
    toy: Toy, toy_examples: Examples, tiny_run: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"teacher": tiny_run, "unlabelled": toy_examples(30, seed=5)}
    given["num_train_epochs"] = 2
    toy(run=tmp_path / "whole", **given)

    def stop(done: StepReport) -> None:
        if done.step == 5:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(TrainingInterrupted):
        toy(run=tmp_path / "cut", reporter=Reporter(step=stop), **given)
    toy(run=tmp_path / "other", **{**given, "teacher": tiny_run, "seed": 1, "num_train_epochs": 1})
    for changed, message in (
        ({"teacher": tmp_path / "other"}, "the teacher: not the same as before"),
        ({"teacher_weight": 0.5}, "teacher_weight: 0.9 before, 0.5 now"),
        ({"unlabelled": toy_examples(29, seed=5)}, "the examples as the model reads them: not"),
        ({"teacher": None, "unlabelled": None}, "teacher: not the same as before"),
    ):
        with pytest.raises(TrainingError, match=message):
            toy(run=tmp_path / "cut", resume=True, **{**given, **changed})

    resumed = toy(run=tmp_path / "cut", resume=True, **given)

    assert resumed.result.resumed_from == 5
    whole, cut = (tmp_path / name / "model.safetensors" for name in ("whole", "cut"))
    assert whole.read_bytes() == cut.read_bytes()


def test_a_teacher_that_does_not_fit_is_refused_by_name(
    toy: Toy,
    toy_examples: Examples,
    tiny_run: Path,
    tiny_score_run: Path,
    tiny_model: Path,
    write: Callable[[str, Any], Path],
    tmp_path: Path,
) -> None:
    other = tmp_path / "other"
    (tmp_path / "cased").mkdir()
    for file in tiny_model.iterdir():
        (tmp_path / "cased" / file.name).write_bytes(file.read_bytes())
    settings = tmp_path / "cased" / "tokenizer_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "do_lower_case": False}))
    names = ("animal", "plant")
    relabelled = [
        TextExample(one.text, None, names[n % 2], one.row) for n, one in enumerate(toy_examples(20))
    ]
    toy(train=relabelled, dev=None, task=Classification(names), max_steps=1, run=other)
    for given, message in (
        ({"teacher": tiny_score_run}, "was trained to regress, and this training is to classify"),
        ({"teacher": other}, "the labels animal, plant, .* examples have animal, colour: name"),
        ({"model": tmp_path / "cased", "teacher": tiny_run}, f"{tiny_run}.* different tokenizers"),
        ({"teacher": tiny_model}, "has no head that predicts"),
        ({"teacher": tmp_path / "none"}, "none"),
        ({"teacher_weight": 0.5}, "^teacher_weight needs teacher: give both"),
        ({"unlabelled": toy_examples(3)}, "^unlabelled needs teacher"),
        (
            {"teacher": tiny_run, "teacher_weight": 0.0},
            "^teacher_weight is 0.0; expected a fraction",
        ),
        ({"teacher": tiny_run, "teacher_temperature": 0.0}, "^teacher_temperature is 0.0; expec"),
        ({"num_layers": 3}, "^num_layers is 3, but the model has 2 layers: give 1 to 2"),
        ({"num_layers": 0}, "^num_layers is 0; expected"),
    ):
        with pytest.raises(TidyBertError, match=message):
            toy(**given)


def test_a_teacher_of_words_alone_is_refused(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "tags"
    train = [TaggedExample(("the", "cat"), ("O", "B-x"), row) for row in range(4)]
    given = {"train": train, "dev": None, "task": Tagging(("O", "B-x", "I-x")), "max_steps": 1}
    toy(**given, run=run)
    path = run / "tidybert.json"
    values = json.loads(path.read_text())
    del values["settings"]["running_text"]
    path.write_text(json.dumps(values))

    # BERT's WordPiece reads both alike.
    toy(**given, teacher=run)
    monkeypatch.setattr(BertTokenizer, "cuts_words_alone", lambda tokenizer, text="": False)
    with pytest.raises(UsageError, match="trained on words that were cut alone"):
        toy(**given, teacher=run)


def test_a_task_without_a_loss_for_it_refuses_a_teacher(toy: Toy, tiny_run: Path) -> None:
    class Strange(Classification):
        imitation_losses = Task.imitation_losses

    with pytest.raises(UsageError, match="teacher is not for classify; leave it out"):
        toy(task=Strange(("animal", "colour")), teacher=tiny_run)


def test_unlabelled_texts_are_read_checked_and_counted(
    toy_examples: Examples, tiny_run: Path, tiny_model: Path, tmp_path: Path, capsys: Any
) -> None:
    train, dev, more = toy_examples(24), toy_examples(12, seed=1), toy_examples(9, seed=2)
    texts = [*(one.text for one in more), more[0].text, train[0].text, dev[3].text, "red " * 40]

    def lines(examples: list[TextExample]) -> str:
        return "".join(json.dumps({"text": e.text, "label": e.label}) + "\n" for e in examples)

    (tmp_path / "train.jsonl").write_text(lines(train))
    (tmp_path / "dev.jsonl").write_text(lines(dev))
    (tmp_path / "more.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    command = ["finetune", "classify", str(tiny_model), "--train", str(tmp_path / "train.jsonl")]
    command += ["--dev", str(tmp_path / "dev.jsonl"), "--max-steps", "1", "--max-seq-length", "16"]
    command += ["--teacher", str(tiny_run), "--num-layers", "1"]
    more_of = ["--unlabelled", str(tmp_path / "more.jsonl"), "--out", str(tmp_path / "run")]

    assert shell.run([*command, *more_of]) == 0

    told = " ".join(capsys.readouterr().err.split())
    for line in (
        "unlabelled: 13 examples for the teacher",
        "unlabelled: 1 example with a text of an earlier one",
        "unlabelled: 1 example with a text of a training example",
        "1 of 13 unlabelled examples were cut to --max-seq-length",
        "1 unlabelled example of 13 with a text that a dev example has too (line 12 of unlabelled)",
        "answered 37 sequences once",
    ):
        assert line in told
    recorded = json.loads((tmp_path / "run" / "arguments.json").read_text())
    assert recorded["unlabelled"] == str(tmp_path / "more.jsonl")
    assert recorded["teacher"] == str(tiny_run)
    assert recorded["record"]["files"]["unlabelled"]["sha256"]
    assert shell.run(["info", str(tmp_path / "run")]) == 0
    assert f"teacher: run {tiny_run}, sha256 " in capsys.readouterr().out

    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "red"}\n{"text": 3\n')
    assert shell.run([*command, "--unlabelled", str(bad), "--out", str(tmp_path / "b")]) == 1
    assert "bad.jsonl" in capsys.readouterr().err
    with pytest.raises(DataError, match="a pair of texts, but the model was trained on single"):
        tidybert.finetune(
            str(tmp_path / "train.jsonl"),
            model=tiny_model,
            teacher=tiny_run,
            unlabelled=[("red", "blue")],
            max_seq_length=16,
        )
