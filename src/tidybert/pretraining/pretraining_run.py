"""A pre-training run: config, then build, then train, then save.

pretraining_objective.py says what a step is, and its batches come from stream.py.
"""

import time
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from tidybert.catalog import is_size
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import save_model_directory
from tidybert.configuration import BertConfig
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.corpus.verification import verify_files
from tidybert.errors import param
from tidybert.inference.loading import choose_device, to_device
from tidybert.modeling.kernels.layer_norm import keep_half_residual
from tidybert.pretraining.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.micro_batch import micro_batch_tokens
from tidybert.pretraining.objectives import HeldOut, PretrainingModel, build_pretraining_model
from tidybert.pretraining.plan import PretrainingPlan
from tidybert.pretraining.pretraining_arguments import PretrainingArguments, check_lengths
from tidybert.pretraining.pretraining_card import write_pretraining_card
from tidybert.pretraining.pretraining_objective import PretrainingObjective
from tidybert.pretraining.start import build_model, start_from_corpus
from tidybert.pretraining.stream import PhasedStream
from tidybert.pretraining.throughput import Utilization, flops_per_token, peak_flops
from tidybert.pretraining.wrapped_layers import checkpoint_activations, compile_rows
from tidybert.storage.model_files import RECORD
from tidybert.training.background_writer import snapshot
from tidybert.training.determinism import repeating
from tidybert.training.distributed import Processes
from tidybert.training.loop import TrainingLoop
from tidybert.training.random_numbers import weights_drawn_with
from tidybert.training.reports import TrainingCallbacks, TrainingResult
from tidybert.training.run_checkpoints import remove_best, remove_checkpoints
from tidybert.training.run_directory import clear_run, owning_run, write_arguments
from tidybert.training.run_origin import environment
from tidybert.training.run_room import require_room_for_run, trained_bytes
from tidybert.training.sharding import load_weights

_NOTE_SECONDS: Final = 3.0


@owning_run
@repeating
def pretrain(
    model: str | Path,
    data: str | Path,
    run: Path,
    arguments: PretrainingArguments,
    *,
    instances: InstanceOptions | None = None,
    masking: MaskingOptions | None = None,
    resume: bool = False,
    verify: bool = True,
    recorded: Mapping[str, Any] | None = None,
    keep_checkpoints: bool = False,
    force: bool = False,
    device: str = "auto",
    processes: Processes | None = None,
    callbacks: TrainingCallbacks | None = None,
) -> TrainingResult:
    """Train a size from random weights, or go on from a MODEL, and save the RUN.

    Args:
        model: a size (``mini``), whose vocabulary is the corpus's, or a MODEL with that vocabulary.
        data: a directory that ``tidybert build-corpus`` wrote.
        run: the directory to write.
        resume: go on from the last checkpoint in ``run``.
        verify: compare all files of the corpus with their sha256 first.
        recorded: arguments for arguments.json, beside the others or in their place.
        keep_checkpoints: keep RUN/checkpoints when the run is finished.
        force: replace a RUN that is at ``run``, once training can begin.
        processes: this one's place among those that torchrun started.

    Raises UsageError, DataError, ModelNotFoundError, ConfigError, WeightsError, TrainingError, and
    TrainingInterrupted once a checkpoint is written.
    """
    callbacks = callbacks or TrainingCallbacks()
    processes = processes or Processes()
    if not processes.is_first:
        # All processes would say the same.
        callbacks = TrainingCallbacks()
    # The first process has the RUN for itself before the others go on.
    processes.wait()
    chosen = choose_device(processes.own_device(device))
    arguments = arguments.for_device(chosen.type)
    plan = PretrainingPlan(
        TokenCorpus(data), arguments, instances or InstanceOptions(), masking or MaskingOptions(),
        processes, callbacks.tell,
    )  # fmt: skip
    if verify:
        _verify(plan)
    with weights_drawn_with(arguments.seed):
        network, config = build_model(model, plan)
    check_lengths(arguments, plan.instances.max_seq_length, config.max_position_embeddings)
    # Sharding and compiling change the network in place.
    from_corpus = is_size(model) and arguments.initial_weights == "corpus"
    unchanged = deepcopy(network) if from_corpus else None
    _require_room(run, network, plan)
    to_device(network, str(chosen))
    _choose_how_layers_run(network, arguments)
    stream = PhasedStream(plan, micro_batch_tokens(network, plan, chosen))
    if arguments.compile:
        compile_rows(network.bert.layers)
    used = _utilization(config, stream, plan, chosen)
    held_out = HeldOut(plan, stream.streams[0], chosen)
    identity = plan.identity(network)
    objective = PretrainingObjective(
        network,
        stream.take,
        arguments,
        evaluate=held_out.measure,
        first_position=stream.first_position,
        processes=processes,
        mfu=used.of_step if used else None,
        note=callbacks.tell,
    )
    trainer = TrainingLoop(objective, run=run, identity=identity, callbacks=callbacks)
    if resume:
        trainer.resume()
    if unchanged is not None and not trainer.state.step:
        if processes.is_first:
            start_from_corpus(unchanged, plan)
        load_weights(network, processes.from_first(unchanged.state_dict(), chosen))
    del unchanged
    given = {**_given(model, data, plan), "device": device, **(recorded or {})}
    record: dict[str, Any] = {
        "num_steps": objective.settings.num_steps,
        "processes": processes.size,
        "changed_on_the_way": trainer.state.changes,
        **environment(chosen),
        "measured_on": held_out.part,
    }
    if processes.is_first:
        if force:
            clear_run(run)
        write_arguments(run, {**given, RECORD: record})
    result = trainer.train()
    # Of all processes that the run has had, one after another.
    so_far = trainer.state.progress
    result.seconds, result.num_tokens = so_far["seconds"], so_far["num_tokens"]
    if used is not None and processes.is_first:
        share = used.of_run(result.num_steps, result.num_tokens, result.seconds)
        where = f"{processes.size} x {torch.cuda.get_device_name(chosen)}"
        callbacks.tell(f"{share:.1%} of the peak of {where}")
    # Gathered from the shards of all processes.
    weights = snapshot(network.state_dict(), processes.is_first)
    # All have read the best weights, which are removed below.
    processes.wait()
    if processes.is_first:
        record |= {"seconds": round(result.seconds, 3), "num_tokens": result.num_tokens}
        given[RECORD] = record
        write_arguments(run, given)
        write_pretraining_card(run, given, result, config)
        _save(run, plan, weights, config, result)
        (remove_best if keep_checkpoints else remove_checkpoints)(run)
    return result


def _choose_how_layers_run(network: PretrainingModel, arguments: PretrainingArguments) -> None:
    if arguments.recipe == "fast":
        keep_half_residual(network)
    if arguments.checkpoint_activations:
        checkpoint_activations(network.bert.layers)


def _given(model: str | Path, data: str | Path, plan: PretrainingPlan) -> dict[str, Any]:
    """The arguments by name, as arguments.json has them."""
    given = {"task": plan.task, "model": str(model), "data": str(data), **plan.to_dict()}
    return given if is_size(model) else {**given, "initial_weights": None}


def _verify(plan: PretrainingPlan) -> None:
    """Compare the files of the corpus with their sha256; processes of one host share the work."""
    processes = plan.processes
    held_out = TokenCorpus(plan.corpus.directory, "held-out")
    files = [*plan.corpus.hashed_files(), *held_out.hashed_files()]
    last = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > _NOTE_SECONDS:
            last = time.monotonic()
            plan.note(
                f"comparing the corpus with its sha256: {done / 1e9:,.1f} of {total / 1e9:,.1f} GB "
                f"({param('verify', False)} leaves it out)"
            )

    share = slice(processes.local_rank % processes.local_size, None, processes.local_size)
    verify_files(files[share], progress)
    processes.wait()


def _require_room(run: Path, network: PretrainingModel, plan: PretrainingPlan) -> None:
    """Raise DiskError unless the disk has room for what the first process writes at least."""
    arguments = plan.arguments
    if not plan.processes.is_first:
        return
    num_moments = 2 if arguments.setting("optimizer") == "adamw" else 1
    require_room_for_run(
        run,
        network,
        moments=num_moments * trained_bytes(network),
        save_total_limit=arguments.save_total_limit,
        num_saves=max(1, arguments.setting("max_steps") // arguments.save_steps),
        keeps_best=True,
    )


def _utilization(
    config: BertConfig, stream: PhasedStream, plan: PretrainingPlan, device: torch.device
) -> Utilization | None:
    """Measures the share of the devices' peak that the run reaches; None where it is unknown."""
    peak = peak_flops(device)
    if peak is None:
        return None
    predicted = plan.predicted_share
    flops = [flops_per_token(config, length, predicted) for length in stream.lengths]
    return Utilization(flops, stream.switch, peak * plan.processes.size)


def _save(
    run: Path,
    plan: PretrainingPlan,
    weights: Mapping[str, Tensor],
    config: BertConfig,
    result: TrainingResult,
) -> None:
    objective = plan.instances.objective
    save_model_directory(
        run,
        model_state=weights,
        config=config,
        tokenizer=plan.tokenizer(),
        metadata=ModelMetadata(
            task=plan.task,
            max_seq_length=plan.instances.max_seq_length,
            settings={"objective": objective},
            metrics=result.metrics,
        ),
        # Sharding gives the network's own class another name.
        architecture=build_pretraining_model(objective).__name__,
    )
