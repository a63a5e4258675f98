"""What a resumed fine-tuning must share with the run that wrote the checkpoint."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from torch import nn

from tidybert.data.checks import TrainingData
from tidybert.finetuning.distillation import Lessons
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.tasks.task import AnyTask
from tidybert.training.changes import changes_of
from tidybert.training.runs.run_identity import RunIdentity, sha256_of, weights_sha256
from tidybert.training.training_arguments import TrainingArguments


def identity_of(
    job: FinetuningJob,
    task: AnyTask,
    model: nn.Module,
    data: TrainingData[Any],
    lessons: Lessons,
    arguments: TrainingArguments,
) -> RunIdentity:
    """Settings, and hashes of the examples, the first weights and the teacher."""
    settings, contents = {}, {}
    if lessons.teacher:
        settings = {name: getattr(job, name) for name in ("teacher_weight", "teacher_temperature")}
        contents = {"teacher": lessons.teacher["sha256"]}

    def pieces() -> Iterator[bytes]:
        unlabelled = lessons.features[len(data.train_features) :]
        for features in (data.train_features, data.dev_features, unlabelled):
            # So a run without a teacher keeps the hash that older versions recorded.
            if features is unlabelled and not lessons.teacher:
                continue
            yield f"{len(features)} examples".encode()
            for one in features:
                yield one.input_ids.tobytes()
                rest = (one.token_type_ids.tobytes(), one.lengths, one.label, one.weight)
                yield repr(rest).encode()

    return RunIdentity(
        settings={
            "task": task.name,
            "label_names": task.label_names,
            "max_seq_length": data.max_seq_length,
            **settings,
            **asdict(arguments),
        },
        contents={"data": sha256_of(pieces()), "weights": weights_sha256(model), **contents},
        kinds=changes_of(arguments),
    )
