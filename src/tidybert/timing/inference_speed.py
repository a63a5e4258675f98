"""Inference timed: from texts to logits in float32, tidybert and transformers in turn.

Both sides open one directory: the MODEL with a classifier of random weights.  transformers runs as
its users run it: a loop of batches, each padded to its longest text.  It is timed twice, on the
texts in the order given and on the texts sorted by length, which leave almost nothing to pad.
On a GPU, processes tokenise its batches, which go over from pinned memory.  Times end when the
logits are in the host's memory.  Speeds are measured in one process, peak memory in a process for
each side::

    python -m tidybert.timing.inference_speed ours '{"directory": …, "examples": …, "device": …}'
"""

import copy
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.configuration import BertConfig
from tidybert.errors import TidyBertError
from tidybert.files.text_examples import TextExample
from tidybert.inference.forward import run_features
from tidybert.inference.loading import fitting_length
from tidybert.inference.predictor import Predictor
from tidybert.pretraining.throughput import flops_per_token, peak_flops
from tidybert.tasks.classification import Classification
from tidybert.timing.measuring import answer, in_turn, run_apart, summarize
from tidybert.timing.setting import LOADER_WORKERS, SIDES
from tidybert.timing.step_clock import are_close, profile_once, with_shares

BATCH_SIZE: Final = 32
"""transformers' batches; ours are cut by tokens."""
LOGITS_TOLERANCE: Final = 1e-4
_MOST_WARM_UP_RUNS: Final = 10

Logits = npt.NDArray[np.float32]
Run = Callable[[Sequence[TextExample]], Logits]
"""From examples to their logits (B, 2), in the order given."""


def bench_inference(
    model: str,
    examples: Sequence[TextExample],
    *,
    sides: Sequence[str] = SIDES,
    rounds: int = 5,
    max_seq_length: int = 128,
    threads: int | None = None,
    device: str = "cpu",
    profiled: bool = False,
    report: Callable[[str], None] = lambda _line: None,
) -> dict[str, Any]:
    """Texts a second in both orders of the texts, and peak MiB; a round times every side once.

    ``samples``, ``medians`` and ``ratios`` are as ``summarize`` gives them, of the quantities
    texts_per_second_in_order, texts_per_second_by_length and peak_mib (of a process that opens the
    model and runs the texts once; of a GPU's memory on a GPU).  ``threads`` are PyTorch's; None
    leaves its choice.  With ``profiled``, ``profile`` is each side's for all texts in their order
    (see ``profile_of``).  ``mfu`` is each side's share of the device's peak in float32, in that
    order; None where the peak is not known.

    Raises TidyBertError where the sides' logits differ by more than LOGITS_TOLERANCE, because they
    have not done the same work, and errors of opening MODEL.
    """
    with tempfile.TemporaryDirectory() as folder, _threads(threads) as used_threads:
        directory = Path(folder) / "model"
        lengths, cut = _prepare(model, directory, examples, max_seq_length)
        given = Path(folder) / "examples.json"
        given.write_text(json.dumps([[one.text, one.text_pair] for one in examples]))
        samples: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
        work = {
            "directory": str(directory),
            "examples": str(given),
            "max_seq_length": max_seq_length,
            "device": device,
            "profiled": profiled,
        }
        profiles: dict[str, dict[str, Any] | None] = {}
        for side in sides:
            apart = run_apart("tidybert.timing.inference_speed", side, work, used_threads)
            report(f"memory: {side} {apart['peak_mib']} MiB")
            samples[side]["peak_mib"] = [apart["peak_mib"]]
            profiles[side] = apart.get("profile")
        by_length = sorted(range(len(examples)), key=lambda place: -lengths[place])
        orders = {"in_order": examples, "by_length": [examples[place] for place in by_length]}
        runs = {side: _open(side, directory, max_seq_length, device) for side in sides}
        for run in runs.values():
            _warm_up(run, list(orders.values()), device)
        difference = 0.0
        for number in range(rounds):
            for order, texts in orders.items():
                logits = {}
                for side in in_turn(sides, number):
                    logits[side], seconds = _timed(runs[side], texts)
                    assert len(logits[side]) == len(texts)
                    speeds = samples[side].setdefault(f"texts_per_second_{order}", [])
                    speeds.append(len(texts) / seconds)
                difference = max(difference, _difference(logits))
            report(f"round {number + 1} of {rounds} done")
        config = ModelDirectory.open(directory).config
    summary = summarize(samples)
    rates = {side: one["texts_per_second_in_order"] for side, one in summary["medians"].items()}
    peak = _peak_texts_per_second(config, lengths, torch.device(device))
    return {
        "device": device,
        "num_texts": len(examples),
        "num_tokens": sum(lengths),
        "num_truncated": cut,
        "max_seq_length": max_seq_length,
        "rounds": rounds,
        "threads": used_threads,
        "largest_difference_of_logits": difference if len(sides) > 1 else None,
        **summary,
        "mfu": {side: rate / peak if peak else None for side, rate in rates.items()},
        "profile": with_shares(
            profiles, {side: len(examples) / rate for side, rate in rates.items()}
        ),
    }


def _peak_texts_per_second(
    config: BertConfig, lengths: Sequence[int], device: torch.device
) -> float | None:
    """The most that the device can do by its maker's figures; None where not known."""
    peak = peak_flops(device, mixed=False)
    tokens = np.array(lengths)
    # A third of a training step's operations are those of its forward pass.
    per_token = flops_per_token(config, (tokens**2).sum() / tokens.sum(), 0.0) / 3
    return peak and float(peak / (per_token * tokens.mean()))


def _timed(run: Run, examples: Sequence[TextExample]) -> tuple[Logits, float]:
    begin = time.perf_counter()
    logits = run(examples)
    return logits, time.perf_counter() - begin


def _warm_up(run: Run, orders: Sequence[Sequence[TextExample]], device: str) -> None:
    """Run once; on a GPU each order until a run takes as long as the one before, or 10 times."""
    if device == "cpu":
        run(orders[0])
        return
    for examples in orders:
        before = 0.0
        for _ in range(_MOST_WARM_UP_RUNS):
            _, seconds = _timed(run, examples)
            if are_close(before, seconds):
                break
            before = seconds


def save_classifier(model: str, directory: Path, max_seq_length: int) -> None:
    """Save MODEL as a RUN that tells texts of class 0 from texts of class 1, by random weights."""
    origin = ModelDirectory.open(model)
    fitting_length(origin.config, max_seq_length)
    task = Classification(["0", "1"])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network, _ = origin.build(task.build_model, new_head=True)
        # Logits spread like a trained head's, so that LOGITS_TOLERANCE is small in comparison.
        nn.init.normal_(network.classifier.weight)
    save_model_directory(
        directory,
        model_state=network.state_dict(),
        config=origin.config,
        tokenizer=origin.tokenizer,
        metadata=ModelMetadata(task.name, task.label_names, max_seq_length),
        architecture=task.architecture,
        problem_type=task.problem_type,
    )


def _prepare(
    model: str, directory: Path, examples: Sequence[TextExample], max_seq_length: int
) -> tuple[list[int], int]:
    """Save MODEL with a new head; give the examples' numbers of tokens, and how many were cut."""
    save_classifier(model, directory, max_seq_length)
    tokenizer = ModelDirectory.open(directory).tokenizer
    features = Classification(["0", "1"]).features(examples, tokenizer, max_seq_length)
    return [len(one.input_ids) for one in features], sum(one.truncated for one in features)


def _open(side: str, directory: Path, max_seq_length: int, device: str = "cpu") -> Run:
    open_side = _open_ours if side == "ours" else _open_transformers
    return open_side(directory, max_seq_length, device)


def _open_ours(directory: Path, max_seq_length: int, device: str) -> Run:
    predictor = Predictor(directory, device=device, max_seq_length=max_seq_length)

    def run(examples: Sequence[TextExample]) -> Logits:
        # A copy has an empty cache, as if it had seen no text.
        tokenizer = copy.copy(predictor.tokenizer)
        features = predictor.task.features(examples, tokenizer, max_seq_length)
        return np.concatenate(run_features(predictor.task, predictor.model, features))

    return run


def _open_transformers(directory: Path, max_seq_length: int, device: str) -> Run:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        directory, attn_implementation="sdpa"
    )
    model.eval().to(device)
    on_gpu = device != "cpu"

    def encode(batch: Sequence[TextExample]) -> dict[str, torch.Tensor]:
        pairs = [one.text_pair for one in batch]
        encoded = tokenizer(
            [one.text for one in batch],
            pairs if pairs[0] is not None else None,
            padding=True,
            truncation=True,
            max_length=max_seq_length,
            return_tensors="pt",
        )
        return dict(encoded)

    @cache
    def batches(number: int) -> torch.utils.data.DataLoader[Any]:
        # Its processes are started once for each order of the texts.
        return torch.utils.data.DataLoader(
            given[number],  # type: ignore[arg-type]
            batch_size=BATCH_SIZE,
            collate_fn=encode,
            num_workers=LOADER_WORKERS if on_gpu else 0,
            persistent_workers=on_gpu,
            pin_memory=on_gpu,
        )

    given: dict[int, Sequence[TextExample]] = {}

    def run(examples: Sequence[TextExample]) -> Logits:
        given[id(examples)] = examples
        parts = []
        with torch.inference_mode():
            for encoded in batches(id(examples)):
                moved = {name: each.to(device, non_blocking=True) for name, each in encoded.items()}
                parts.append(model(**moved).logits)
        logits: Logits = torch.cat(parts).cpu().numpy()
        return logits

    return run


def _difference(logits: dict[str, Logits]) -> float:
    """The largest difference between two sides' logits of the same texts; 0 for one side."""
    ours = logits["ours"]
    # Python's max would ignore a NaN, and a comparison with NaN is false.
    largest = float(np.max([np.abs(ours - other).max() for other in logits.values()]))
    if not largest <= LOGITS_TOLERANCE:
        raise TidyBertError(
            f"the sides' logits differ by up to {largest:.2g}, more than {LOGITS_TOLERANCE:g}: "
            "they have not done the same work, so their times say nothing"
        )
    return largest


@contextmanager
def _threads(number: int | None) -> Iterator[int]:
    """Give PyTorch this many threads for the block, or its choice; yields their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def _run_once(side: str, work: dict[str, Any]) -> dict[str, Any]:
    """Open the model and run the texts once, in a process of its own."""
    texts = json.loads(Path(work["examples"]).read_text())
    examples = [TextExample(text, pair, None, row) for row, (text, pair) in enumerate(texts, 1)]
    run = _open(side, Path(work["directory"]), work["max_seq_length"], work["device"])
    logits = run(examples)
    if not work["profiled"]:
        return {"num_texts": len(logits)}
    profile = profile_once(lambda: run(examples), torch.device(work["device"]))
    return {"num_texts": len(logits), "profile": profile}


if __name__ == "__main__":
    answer(_run_once)
