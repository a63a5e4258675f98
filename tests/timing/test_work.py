"""A fine-tuning's work travels to another process as JSON."""

import json
from dataclasses import asdict

from tidybert.timing.work import FinetuningWork


def test_work_comes_back_as_it_was(work: FinetuningWork) -> None:
    assert FinetuningWork.from_dict(json.loads(json.dumps(asdict(work)))) == work


def test_batches_are_whole_epochs_of_all_examples(work: FinetuningWork) -> None:
    batches = list(work.batches(20))

    assert [len(batch) for batch in batches] == [8, 8, 4] * 3
    assert sorted(place for batch in batches[:3] for place in batch) == list(range(20))
