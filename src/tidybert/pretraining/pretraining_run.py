"""A pre-training run: config, then build, then train, then save.

pretraining_objective.py says what a step is, and its batches come from stream.py.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch

from tidybert.catalog import find_model
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import save_model_directory, write_model
from tidybert.configuration import BertConfig
from tidybert.corpus.manifest import verify_files
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import param
from tidybert.inference.loading import choose_device, to_device
from tidybert.modeling.kernels.layer_norm import keep_half_residual
from tidybert.pretraining.batches.instance_options import NextTokenOptions
from tidybert.pretraining.batches.micro_batch import micro_batch_tokens
from tidybert.pretraining.batches.stream import PhasedStream
from tidybert.pretraining.language_model_run import text_corpus
from tidybert.pretraining.model_shape import is_new
from tidybert.pretraining.objectives import HeldOut, PretrainingModel, build_pretraining_model
from tidybert.pretraining.plan import PretrainingPlan
from tidybert.pretraining.pretraining_arguments import PretrainingArguments, check_lengths
from tidybert.pretraining.pretraining_card import write_pretraining_card
from tidybert.pretraining.pretraining_job import Data, PretrainingJob
from tidybert.pretraining.pretraining_objective import PretrainingObjective
from tidybert.pretraining.probes import read_probes, scores_of
from tidybert.pretraining.run_estimate import Estimate, estimate
from tidybert.pretraining.start import build_model, start_from_corpus
from tidybert.pretraining.throughput import Utilization, flops_per_token, peak_flops
from tidybert.pretraining.weighted_data import weighted_corpora
from tidybert.pretraining.wrapped_layers import checkpoint_activations, compile_rows
from tidybert.storage.model_files import RECORD
from tidybert.training.determinism import repeating
from tidybert.training.distributed import Processes
from tidybert.training.loop import TrainingLoop
from tidybert.training.precision import is_mixed
from tidybert.training.random_numbers import weights_drawn_with
from tidybert.training.reports import TrainingCallbacks, TrainingResult
from tidybert.training.runs.background_writer import snapshot
from tidybert.training.runs.run_checkpoints import remove_best, remove_checkpoints
from tidybert.training.runs.run_directory import (
    clear_run,
    owned_run,
    require_room_for_run,
    trained_bytes,
    write_arguments,
)
from tidybert.training.runs.run_origin import environment
from tidybert.training.sharding import load_weights

_NOTE_SECONDS: Final = 3.0


def run_pretraining(
    job: PretrainingJob,
    callbacks: TrainingCallbacks | None = None,
    processes: Processes | None = None,
    build_objective: Callable[..., PretrainingObjective] = PretrainingObjective,
) -> TrainingResult:
    """Train a size from random weights, or go on from a MODEL, and save the RUN.

    ``processes``: this one's place among those that torchrun started.  ``build_objective``: takes
    the arguments of PretrainingObjective, and may add to what a step learns.

    Raises UsageError, DataError, ModelNotFoundError, ConfigError, WeightsError, TrainingError, and
    TrainingInterrupted once a checkpoint is written.
    """
    callbacks = callbacks or TrainingCallbacks()
    processes = processes or Processes()
    if not processes.is_first:
        # All processes would say the same.
        callbacks = TrainingCallbacks()
    with ExitStack() as stack:
        if processes.is_first:
            stack.enter_context(owned_run(job.out, job.resume, job.force))
        stack.enter_context(repeating(job.arguments.deterministic, job.device))
        # The first process has the RUN for itself before the others go on.
        processes.wait()
        data = job.data
        if isinstance(job.instances, NextTokenOptions):
            data = stack.enter_context(text_corpus(job, callbacks))
        corpora = _corpora_in_turn(data, job.cache_gb, callbacks, processes)
        return _pretrain(job, corpora, callbacks, processes, build_objective)


def _pretrain(
    job: PretrainingJob,
    corpora: tuple[TokenCorpus, Sequence[float]],
    callbacks: TrainingCallbacks,
    processes: Processes,
    build_objective: Callable[..., PretrainingObjective],
) -> TrainingResult:
    model, run = job.model, job.out
    chosen = choose_device(processes.own_device(job.device))
    arguments = job.arguments.for_device(chosen.type)
    corpus, shares = corpora
    plan = PretrainingPlan(
        corpus, arguments, job.instances, job.masking, processes, callbacks.tell, shares
    )
    if job.verify:
        _verify(plan)
    with weights_drawn_with(arguments.seed):
        network, config = build_model(model, plan, job.shape)
    check_lengths(arguments, plan.instances.max_seq_length, config.max_position_embeddings)
    # Sharding and compiling change the network in place.
    from_corpus = is_new(model) and arguments.initial_weights == "corpus"
    unchanged = deepcopy(network) if from_corpus else None
    _require_room(job, network, plan)
    to_device(network, str(chosen))
    _choose_how_layers_run(network, arguments)
    micro_batch = micro_batch_tokens(network, plan, chosen)
    stream = PhasedStream(plan, micro_batch)
    if not plan.is_causal:
        callbacks.tell(_estimate(plan, config, micro_batch, chosen).line())
    if arguments.compile:
        compile_rows(network.bert.layers)
    used = _utilization(config, stream, plan, chosen)
    held_out = HeldOut(plan, stream.streams, chosen)
    probes = read_probes(job.probe, plan)
    identity = plan.identity(network)
    objective = build_objective(
        network,
        stream.take,
        arguments,
        evaluate=lambda each: {**held_out.measure(each), **scores_of(probes, each)},
        first_position=stream.first_position,
        in_new_order=stream.in_new_order,
        processes=processes,
        mfu=used.of_step if used else None,
        note=callbacks.tell,
    )
    identity = objective.identity(identity)
    loop = TrainingLoop(
        objective,
        run=run,
        identity=identity,
        callbacks=callbacks,
        as_model=lambda folder, weights: write_model(
            folder, model_state=weights, **_parts(plan, config)
        ),
        keep_every=job.keep_every,
    )
    if job.force and processes.is_first:
        clear_run(run)
    if job.branch is not None:
        loop.branch(job.branch, find_model(job.branch))
    elif job.resume:
        loop.resume(change=job.change)
    if unchanged is not None and not loop.state.step:
        if processes.is_first:
            start_from_corpus(unchanged, plan)
        load_weights(network, processes.from_first(unchanged.state_dict(), chosen))
    del unchanged
    given = {"task": plan.task, **plan.to_dict(), **job.recorded_too}
    if not is_new(model):
        given["initial_weights"] = None
    record = {**_record(plan, loop.state.changes, chosen), "measured_on": held_out.part}
    if processes.is_first:
        write_arguments(run, {**given, RECORD: record})
    result = loop.train()
    so_far = loop.state.progress
    result = replace(result, seconds=so_far["seconds"], num_tokens=so_far["num_tokens"])
    if used is not None and processes.is_first:
        share = used.of_run(result.num_steps, result.num_tokens, result.seconds)
        where = f"{processes.size} x {record.get('device_name', record['processor'])}"
        callbacks.tell(f"{share:.1%} of the peak of {where}")
    if processes.is_first:
        record |= {"seconds": round(result.seconds, 3), "num_tokens": result.num_tokens}
        _describe(run, {**given, RECORD: record}, result, config)
    _save(run, plan, network, config, result)
    if not job.keep_checkpoints and processes.is_first:
        remove_checkpoints(run)
    return result


def _corpora_in_turn(
    data: Data, cache_gb: float, callbacks: TrainingCallbacks, processes: Processes
) -> tuple[TokenCorpus, Sequence[float]]:
    """The corpora; the first process of each host copies those of other machines."""
    if processes.local_rank:
        processes.wait()
        return weighted_corpora(data, callbacks.tell, cache_gb)
    found = weighted_corpora(data, callbacks.tell, cache_gb)
    processes.wait()
    return found


def _choose_how_layers_run(network: PretrainingModel, arguments: PretrainingArguments) -> None:
    if arguments.recipe == "fast":
        keep_half_residual(network)
    if arguments.checkpoint_activations:
        checkpoint_activations(network.bert.layers)


def _verify(plan: PretrainingPlan) -> None:
    """Compare the files of the corpus with their sha256; processes of one host share the work."""
    processes = plan.processes
    files = plan.corpus.hashed_files()
    for each in plan.corpus.corpora:
        files += TokenCorpus(each.directory, "held-out").hashed_files()
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


def _describe(
    run: Path, arguments: Mapping[str, Any], result: TrainingResult, config: BertConfig
) -> None:
    """Write what a RUN tells of itself."""
    write_arguments(run, arguments)
    write_pretraining_card(run, arguments, result, config)


def _record(plan: PretrainingPlan, changes: Sequence[Any], device: torch.device) -> dict[str, Any]:
    """What arguments.json says of a run that begins, beside its arguments."""
    return {
        "num_steps": plan.arguments.setting("max_steps"),
        "processes": plan.processes.size,
        "changed_on_the_way": changes,
        **environment(device),
    }


def _require_room(job: PretrainingJob, network: PretrainingModel, plan: PretrainingPlan) -> None:
    """Raise DiskError unless the disk has room for what the first process writes at least."""
    arguments = plan.arguments
    if not plan.processes.is_first:
        return
    num_moments = 2 if arguments.setting("optimizer") == "adamw" else 1
    require_room_for_run(
        job.out,
        network,
        moments=num_moments * trained_bytes(network),
        save_total_limit=arguments.save_total_limit,
        num_saves=max(1, arguments.setting("max_steps") // arguments.save_steps),
        keep_every=job.keep_every,
        keeps_best=True,
    )


def _estimate(
    plan: PretrainingPlan, config: BertConfig, micro_batch: int, device: torch.device
) -> Estimate:
    """What the run takes, for the line before its start."""
    arguments = plan.arguments
    steps, tokens = arguments.setting("max_steps"), arguments.setting("tokens_per_step")
    return estimate(
        config,
        num_tokens=steps * tokens,
        sequence_length=plan.instances.max_seq_length,
        predicted_share=plan.predicted_share,
        micro_batch=min(micro_batch, tokens),
        num_moments=2 if arguments.optimizer == "adamw" else 1,
        device=device,
        mixed=is_mixed(arguments.precision, device),
        num_processes=plan.processes.size,
    )


def _utilization(
    config: BertConfig, stream: PhasedStream, plan: PretrainingPlan, device: torch.device
) -> Utilization | None:
    """Measures the share of the devices' peak that the run reaches; None where it is unknown."""
    given = plan.arguments.peak_tflops
    peak = peak_flops(device) if given is None else given * 1e12
    if peak is None:
        return None
    predicted = plan.predicted_share
    flops = [flops_per_token(config, length, predicted) for length in stream.lengths]
    return Utilization(flops, stream.switch, peak * plan.processes.size)


def _save(
    run: Path,
    plan: PretrainingPlan,
    network: PretrainingModel,
    config: BertConfig,
    result: TrainingResult,
) -> None:
    """Gather the weights of all processes; the first one writes the MODEL."""
    weights = snapshot(network.state_dict(), plan.processes.is_first)
    # All have read the best weights, which are removed below.
    plan.processes.wait()
    if not plan.processes.is_first:
        return
    save_model_directory(run, model_state=weights, **_parts(plan, config, result.metrics))
    remove_best(run)


def _parts(
    plan: PretrainingPlan, config: BertConfig, metrics: Mapping[str, Any] = {}
) -> dict[str, Any]:
    """What makes weights of the run a MODEL."""
    return {
        "config": config,
        "tokenizer": plan.tokenizer(),
        "metadata": ModelMetadata(
            task=plan.task,
            max_seq_length=plan.longest,
            settings={"objective": plan.instances.objective},
            metrics=dict(metrics),
        ),
        # Sharding gives the network's own class another name.
        "architecture": build_pretraining_model(plan.instances.objective).__name__,
    }
