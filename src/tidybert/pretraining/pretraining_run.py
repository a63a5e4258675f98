"""A pre-training run: config, then build, then train.

The loop is in loop.py, the loss in objectives.py, and what a step learns from in instances.py.
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tidybert.catalog import is_size
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_saving import save_model_directory
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.inference.loading import to_device
from tidybert.model_files import BEST_FOLDER
from tidybert.pretraining.compiled_layers import compile_rows
from tidybert.pretraining.held_out_metrics import HeldOut
from tidybert.pretraining.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.loop import Pretrainer
from tidybert.pretraining.objectives import loss_parts
from tidybert.pretraining.phases import Phases
from tidybert.pretraining.pretraining_arguments import (
    MASKED_LM_PROB,
    PretrainingArguments,
    check_lengths,
)
from tidybert.pretraining.start import build_model, start_from_corpus
from tidybert.pretraining.step_reports import PretrainingReport, PretrainingResult
from tidybert.pretraining.throughput import flops_per_token, micro_batch_tokens, peak_flops
from tidybert.training.activation_checkpoints import checkpoint_activations
from tidybert.training.background_writer import snapshot
from tidybert.training.distributed import Processes
from tidybert.training.precision import note_slow_bfloat16
from tidybert.training.run_checkpoints import checkpoints_directory
from tidybert.training.run_directory import check_run, write_arguments
from tidybert.training.sharding import load_weights


@dataclass(frozen=True)
class PretrainingCallbacks:
    """Who is told what: lines of text, each step, each evaluation, each figure."""

    note: Callable[[str], None] = lambda _line: None
    step: Callable[[PretrainingReport], None] | None = None
    metrics: Callable[[int, dict[str, Any]], None] | None = None
    tensorboard: Callable[[str, float, int], None] | None = None


def pretrain(
    model: str | Path,
    data: str | Path,
    run: Path,
    arguments: PretrainingArguments,
    *,
    instances: InstanceOptions | None = None,
    masking: MaskingOptions | None = None,
    resume: bool = False,
    device: str = "auto",
    processes: Processes | None = None,
    callbacks: PretrainingCallbacks | None = None,
) -> PretrainingResult:
    """Train a size from random weights, or go on from a MODEL, and save the RUN.

    Args:
        model: a size (``mini``), whose vocabulary is the corpus's, or a MODEL with that vocabulary.
        data: a directory that ``tidybert build-corpus`` wrote.
        run: the directory to write.
        resume: go on from the last checkpoint in ``run``.
        processes: this one's place among those that torchrun started.

    Raises UsageError, DataError, ModelNotFoundError, ConfigError, WeightsError, TrainingError, and
    TrainingInterrupted once a checkpoint is written.
    """
    callbacks = callbacks or PretrainingCallbacks()
    instances, masking = instances or InstanceOptions(), masking or MaskingOptions()
    if masking.masked_lm_prob is None:
        masking = replace(masking, masked_lm_prob=MASKED_LM_PROB[arguments.recipe])
    processes = processes or Processes()
    if not processes.is_first:
        # What all would say alike is said once.
        callbacks = PretrainingCallbacks()
    check_run(run, resume)
    # All processes have looked at the directory before the first one writes to it.
    processes.wait()
    corpus = TokenCorpus(data)
    torch.manual_seed(arguments.seed)
    network, config = build_model(model, corpus, arguments, instances, callbacks.note)
    # Sharding gives it a class of another name.
    architecture = type(network).__name__
    check_lengths(arguments, instances.max_seq_length, config.max_position_embeddings)
    has_corpus_start = is_size(model) and arguments.start == "corpus"
    # Sharding and compiling change the network in place.
    unchanged = deepcopy(network) if has_corpus_start else None
    chosen = to_device(network, device if processes.size == 1 else _local(device, processes))
    if arguments.checkpoint_activations:
        checkpoint_activations(network.bert.layers)
    micro = micro_batch_tokens(
        network, instances, masking, arguments, processes, chosen, callbacks.note
    )
    if arguments.compile:
        compile_rows(network.bert.layers)
    stream = Phases(corpus, instances, masking, arguments, micro, processes)
    for each in stream.streams:
        if each.shape is not None:
            callbacks.note(
                f"micro-batches of {each.shape.num_rows:,} rows, {each.shape.num_sequences:,} "
                f"sequences and {each.shape.num_predictions:,} predictions, filled up with padding"
            )
    held_out = HeldOut(data, instances, masking, arguments, stream.streams[0], chosen)
    flops = [flops_per_token(config, each, masking.predicted_share) for each in stream.lengths]
    peak = peak_flops(chosen)
    trainer = Pretrainer(
        network,
        stream,
        loss_parts,
        arguments,
        evaluate=held_out.measure,
        run=run,
        first_position=[0, 0, 0, 0],
        fingerprint=_fingerprint(corpus, network, instances, masking, arguments),
        processes=processes,
        report=callbacks.step,
        report_metrics=callbacks.metrics,
        tensorboard=callbacks.tensorboard,
        mfu=(lambda step, rate: rate * flops[step >= stream.switch] / (peak * processes.size))
        if peak
        else None,
    )
    note_slow_bfloat16(chosen, trainer.is_mixed, callbacks.note)
    if resume:
        for line in trainer.resume():
            callbacks.note(line)
        step = trainer.state.step
        callbacks.note(
            f"resuming after step {step} of {trainer.num_steps}"
            if step
            else f"no checkpoint to resume from in {run}: starting at step 1"
        )
    if unchanged is not None and not trainer.state.step:
        if processes.is_first:
            start_from_corpus(unchanged, corpus, arguments, callbacks.note)
        load_weights(network, processes.from_first(unchanged.state_dict(), chosen))
    del unchanged
    if processes.is_first:
        values = {**asdict(instances), **asdict(masking), **arguments.to_dict()}
        if not is_size(model):
            values["start"] = None
        write_arguments(run, {"task": "pretrain", "model": str(model), "data": str(data), **values})
    result = trainer.train()
    if peak is not None and processes.is_first:
        is_long = 1 - stream.switch / result.num_steps
        per_token = (1 - is_long) * flops[0] + is_long * flops[-1]
        share = per_token * result.num_tokens / result.seconds / (peak * processes.size)
        name = torch.cuda.get_device_name(chosen)
        callbacks.note(f"{share:.1%} of the peak of {processes.size} x {name}")
    weights = snapshot(network.state_dict(), processes.is_first)
    # All have read the best weights, which are removed below.
    processes.wait()
    if processes.is_first:
        save_model_directory(
            run,
            model_state=weights,
            config=config,
            tokenizer=corpus.tokenizer(),
            metadata=ModelMetadata(
                task="pretrain",
                max_seq_length=instances.max_seq_length,
                settings={"objective": instances.objective},
                metrics=result.metrics,
            ),
            architecture=architecture,
        )
        # The best weights now stand at the RUN's root.
        shutil.rmtree(checkpoints_directory(run) / BEST_FOLDER, ignore_errors=True)
    return result


def _local(device: str, processes: Processes) -> str:
    """The device of one process of several."""
    on_cuda = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    return f"cuda:{processes.local_rank}" if on_cuda else device


def _fingerprint(
    corpus: TokenCorpus,
    model: nn.Module,
    instances: InstanceOptions,
    masking: MaskingOptions,
    arguments: PretrainingArguments,
) -> str:
    """A hash of all that decides a run's course; how often it is saved and logged is left out."""
    course = {
        name: value
        for name, value in arguments.to_dict().items()
        if not name.startswith(("save_", "logging_", "micro_"))
        and name not in ("max_bad_steps", "sharding")
    }
    words = [corpus.manifest.to_dict(), asdict(instances), asdict(masking), course]
    digest = hashlib.sha256(json.dumps(words, sort_keys=True).encode())
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
