"""A pre-training run: config, then build, then train, then save.

pretraining_objective.py says what a step is, and its batches come from stream.py.
"""

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tidybert.catalog import find_model
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_card import write_card
from tidybert.checkpoints.model_directory import save_model_directory, write_model
from tidybert.configuration import LANGUAGE_MODELS, BertConfig
from tidybert.corpus.building import build_corpus
from tidybert.corpus.documents import CorpusReport, read_documents
from tidybert.corpus.token_shards import TokenCorpus, is_corpus, verify_files
from tidybert.errors import UsageError, param
from tidybert.inference.loading import choose_device, to_device
from tidybert.modeling.kernels.dropout import keep_half_residual
from tidybert.pretraining.batches.instance_options import NextTokenOptions
from tidybert.pretraining.batches.stream import PhasedStream
from tidybert.pretraining.plan import PretrainingPlan, weighted_corpora
from tidybert.pretraining.pretraining_arguments import check_lengths
from tidybert.pretraining.pretraining_job import PretrainingJob, is_new
from tidybert.pretraining.pretraining_objective import (
    HeldOut,
    PretrainingObjective,
    build_pretraining_model,
    micro_batch_tokens,
)
from tidybert.pretraining.probes import read_probes
from tidybert.pretraining.start import build_model, start_from_corpus
from tidybert.pretraining.throughput import Utilization, estimate, flops_per_token, peak_flops
from tidybert.storage.model_files import RECORD
from tidybert.system.reporter import Reporter
from tidybert.tokenization import BasicTokenizer, BertTokenizer
from tidybert.tokenization.learning.vocabulary_training import WordCounts
from tidybert.tokenization.vocabulary import CONTINUATION, SPECIAL_TOKENS
from tidybert.training.determinism import repeating, weights_drawn_with
from tidybert.training.distributed import Processes, load_weights
from tidybert.training.loop import TrainingLoop
from tidybert.training.precision import decided, go_on_as_begun
from tidybert.training.reports import TrainingResult
from tidybert.training.runs.provenance import environment
from tidybert.training.runs.run_checkpoints import remove_best, remove_checkpoints
from tidybert.training.runs.run_directory import (
    clear_run,
    owned_run,
    require_room_for_run,
    trained_bytes,
    write_arguments,
)
from tidybert.training.runs.run_record import snapshot

# Layers changed in place, before a model is shared among processes: compiled, or recomputed.


def compile_rows(layers: nn.ModuleList, backend: str | Callable[..., object] = "inductor") -> None:
    """Compile ``after_attention`` of each layer in place, one graph for each number of rows.

    Attention stays as it is: its kernels are fused already, and its shapes follow the sequences.
    """
    # DDP would cut graphs between its buckets of gradients; these are one layer each already.
    torch._dynamo.config.optimize_ddp = False
    for layer in layers:
        row_by_row: Any = layer.after_attention
        row_by_row = torch.compile(row_by_row, dynamic=False, backend=backend)
        layer.after_attention = row_by_row


def checkpoint_activations(layers: nn.ModuleList) -> None:
    """Make each layer keep its input alone, in training, and run again in the backward.

    Chen et al. 2016, "Training deep nets with sublinear memory cost"; torch.utils.checkpoint.
    """
    for layer in layers:
        layer.forward = partial(_checkpointed, layer, layer.forward)


def _checkpointed(
    layer: nn.Module, forward: Callable[..., Tensor], hidden: Tensor, *given: Any, **named: Any
) -> Tensor:
    if not layer.training:
        return forward(hidden, *given, **named)
    found: Tensor = checkpoint(forward, hidden, *given, use_reentrant=False, **named)
    return found


# The corpus of a language model, which ``tidybert train-lm`` also makes straight from text.
#
# Text is tokenised into a corpus in a temporary folder, which a resumed run makes again: the same
# text gives the same corpus.

HELD_OUT: Final = 0.005
MOST_WORDS: Final = 10_000
"""A text with more different words needs a vocabulary of pieces."""


@contextmanager
def text_corpus(job: PretrainingJob, reporter: Reporter) -> Iterator[Path]:
    """The directory of a language model's corpus, which goes with the block if it is made here.

    Without a ``vocab`` the vocabulary has the text's words.  Raises UsageError for options of text
    where ``job.data`` is a corpus, and for text with too many words; DataError as reading does.
    """
    data, vocab, held_out = job.data, job.vocab, job.held_out
    if not isinstance(data, str | Path):
        raise UsageError(f"{param('data')}: a language model learns from one corpus; give its path")
    if is_corpus(Path(data)):
        for name, value in (("vocab", vocab), ("held_out", held_out)):
            if value is not None:
                raise UsageError(
                    f"{param(name, value)} goes with text; {data} is a corpus, which build-corpus "
                    "has tokenised and divided already"
                )
        yield Path(data)
        return
    if vocab is None:
        tokenizer = tokenizer_of_words(data)
        reporter.tell(
            f"a vocabulary of the text's words and characters, {tokenizer.vocab_size:,} tokens; "
            f"{param('vocab')} takes another"
        )
    else:
        tokenizer = BertTokenizer.from_pretrained(vocab)
    with TemporaryDirectory(prefix="tidybert-lm-") as folder:
        report, directory = CorpusReport(), Path(folder) / "corpus"
        share = HELD_OUT if held_out is None else held_out
        build_corpus([data], tokenizer, directory, held_out=share, report=report)
        for line in report.lines(reporter.spell):
            reporter.tell(line)
        yield directory


def tokenizer_of_words(data: str | Path) -> BertTokenizer:
    """A lower-casing tokenizer of each word and each character of a text; UsageError for many."""
    counts = WordCounts(BasicTokenizer())
    for document in read_documents([data]):
        counts.add(document)
    counts.finish()
    if len(counts.words) > MOST_WORDS:
        raise UsageError(
            f"{data} has {len(counts.words):,} different words, and a vocabulary of whole words "
            f"takes at most {MOST_WORDS:,}: learn one with tidybert train-vocab "
            f"{shlex.quote(str(data))} --out DIR, and give it as {param('vocab', 'DIR')}"
        )
    first, inner = counts.characters()
    characters = sorted(first + inner)
    tokens = [
        *SPECIAL_TOKENS,
        *characters,
        *(CONTINUATION + each for each in characters if each in inner),
        *sorted(counts.words),
    ]
    return BertTokenizer(dict.fromkeys(tokens))


_NOTE_SECONDS: Final = 3.0


def run_pretraining(
    job: PretrainingJob,
    reporter: Reporter | None = None,
    processes: Processes | None = None,
    build_objective: Callable[..., PretrainingObjective] = PretrainingObjective,
) -> TrainingResult:
    """Train a size from random weights, or go on from a MODEL, and save the RUN.

    ``processes``: this one's place among those that torchrun started.  ``build_objective``: takes
    the arguments of PretrainingObjective, and may add to what a step learns.

    Raises UsageError, DataError, ModelNotFoundError, ConfigError, WeightsError, TrainingError, and
    TrainingInterrupted once a checkpoint is written.
    """
    reporter = reporter or Reporter()
    processes = processes or Processes()
    if not processes.is_first:
        # All processes would say the same.
        reporter = Reporter()
    with ExitStack() as stack:
        if processes.is_first:
            stack.enter_context(owned_run(job.out, job.resume, job.force))
        stack.enter_context(repeating(job.arguments.deterministic, job.device))
        # The first process has the RUN for itself before the others go on.
        processes.wait()
        data = job.data
        if isinstance(job.instances, NextTokenOptions):
            data = stack.enter_context(text_corpus(job, reporter))
        # The first process of each host copies the corpora of other machines.
        if processes.local_rank:
            processes.wait()
        corpora = weighted_corpora(data, reporter, job.cache_gb)
        if not processes.local_rank:
            processes.wait()
        return _pretrain(job, corpora, reporter, processes, build_objective)


def _pretrain(
    job: PretrainingJob,
    corpora: tuple[TokenCorpus, Sequence[float]],
    reporter: Reporter,
    processes: Processes,
    build_objective: Callable[..., PretrainingObjective],
) -> TrainingResult:
    model, run = job.model, job.out
    before = go_on_as_begun(run, job.resume)
    chosen = choose_device(processes.own_device(job.device))
    arguments = job.arguments.for_device(chosen.type)
    corpus, shares = corpora
    plan = PretrainingPlan(
        corpus, arguments, job.instances, job.masking, processes, reporter, shares
    )
    if job.verify:
        _verify(plan)
    with weights_drawn_with(arguments.seed):
        network, config = build_model(model, plan, job.shape)
    check_lengths(arguments, plan.instances.max_seq_length, config.max_position_embeddings)
    # Identity and arguments.json have what was asked for.
    identity, given = plan.identity(network), {"task": plan.task, **plan.to_dict()}
    given |= job.recorded_too
    precision = decided(arguments.precision, chosen, config.hidden_size, reporter, before)
    arguments = replace(arguments, precision=precision)
    plan = replace(plan, arguments=arguments)
    # Sharding and compiling change the network in place.
    from_corpus = is_new(model) and arguments.initial_weights == "corpus"
    unchanged = deepcopy(network) if from_corpus else None
    if processes.is_first:
        require_room_for_run(
            run,
            network,
            moments=arguments.num_moments * trained_bytes(network),
            save_total_limit=arguments.save_total_limit,
            num_saves=max(1, arguments.setting("max_steps") // arguments.save_steps),
            keep_every=job.keep_every,
            keeps_best=True,
        )
    to_device(network, str(chosen))
    if arguments.recipe == "fast":
        keep_half_residual(network)
    if arguments.checkpoint_activations:
        checkpoint_activations(network.bert.layers)
    micro_batch = micro_batch_tokens(network, plan, chosen)
    stream = PhasedStream(plan, micro_batch)
    if not plan.is_causal:
        reporter.tell(estimate(plan, config, micro_batch, chosen).line())
    if arguments.compile:
        compile_rows(network.bert.layers)
    # The share of the devices' peak that the run reaches, where the peak is known.
    peak = arguments.peak_tflops
    peak = peak_flops(chosen) if peak is None else peak * 1e12
    used = None
    if peak is not None:
        flops = [flops_per_token(config, each, plan.predicted_share) for each in stream.lengths]
        used = Utilization(flops, stream.switch, peak * processes.size)
    held_out = HeldOut(plan, stream.streams, chosen)
    probes = read_probes(job.probe, plan)
    objective = build_objective(
        network,
        stream.take,
        arguments,
        evaluate=lambda model: {
            **held_out.measure(model),
            **{f"probe_{each.name}": each.score(model) for each in probes},
        },
        first_position=stream.first_position,
        in_new_order=stream.in_new_order,
        processes=processes,
        mfu=used.of_step if used else None,
        reporter=reporter,
    )
    identity = objective.identity(identity)
    loop = TrainingLoop(
        objective,
        run=run,
        identity=identity,
        reporter=reporter,
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
    if not is_new(model):
        given["initial_weights"] = None
    record: dict[str, Any] = {
        "num_steps": arguments.setting("max_steps"),
        "processes": processes.size,
        "changed_on_the_way": loop.state.changes,
        **environment(chosen, model),
        "precision": precision,
        "measured_on": held_out.part,
    }
    if processes.is_first:
        write_arguments(run, {**given, RECORD: record})
    result = loop.train()
    so_far = loop.state.progress
    result = replace(result, seconds=so_far["seconds"], num_tokens=so_far["num_tokens"])
    if used is not None and processes.is_first:
        share = used.of_run(result.num_steps, result.num_tokens, result.seconds)
        where = f"{processes.size} x {record.get('device_name', record['processor'])}"
        reporter.tell(f"{share:.1%} of the peak of {where}")
    if processes.is_first:
        record |= {"seconds": round(result.seconds, 3), "num_tokens": result.num_tokens}
        write_arguments(run, {**given, RECORD: record})
        write_pretraining_card(run, {**given, RECORD: record}, result, config)
    weights = snapshot(network.state_dict(), processes.is_first)
    # All have read the best weights, which are removed below.
    processes.wait()
    if processes.is_first:
        save_model_directory(run, model_state=weights, **_parts(plan, config, result.metrics))
        remove_best(run)
        if not job.keep_checkpoints:
            remove_checkpoints(run)
    return result


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
            plan.reporter.tell(
                f"comparing the corpus with its sha256: {done / 1e9:,.1f} of {total / 1e9:,.1f} GB "
                f"({param('verify', False)} leaves it out)"
            )

    share = slice(processes.local_rank % processes.local_size, None, processes.local_size)
    verify_files(files[share], progress)
    processes.wait()


def _parts(
    plan: PretrainingPlan, config: BertConfig, metrics: Mapping[str, Any] = {}
) -> dict[str, Any]:
    """What makes weights of the run a MODEL."""
    return {
        "config": config,
        # The corpus has them as text, but who uses a BERT may write them.
        "tokenizer": plan.tokenizer().reading(special_tokens_in_text=not plan.is_causal),
        "metadata": ModelMetadata(
            task=plan.task,
            max_seq_length=plan.longest,
            settings={"objective": plan.instances.objective},
            metrics=dict(metrics),
        ),
        # Sharding gives the network's own class another name.
        "architecture": build_pretraining_model(plan.instances.objective).__name__,
    }


def write_pretraining_card(
    run: Path, arguments: Mapping[str, Any], result: TrainingResult, config: BertConfig
) -> bool:
    """Write README.md from arguments.json's content, unless the user wrote it; whether it did."""
    model, data = str(arguments["model"]), arguments["data"]
    is_causal = arguments["task"] == "train-lm"
    return write_card(
        run,
        "pretraining.md.j2",
        name=run.name,
        arguments=arguments,
        record=arguments[RECORD],
        left_out=(RECORD, "task", "model", "data"),
        result=result,
        config=config,
        is_causal=is_causal,
        is_drawn=is_new(model) or model in LANGUAGE_MODELS,
        corpora=[data] if isinstance(data, str) else data,
        tag="text-generation" if is_causal else "fill-mask",
        tags=["tidybert"] if is_causal else ["tidybert", "bert"],
        library="tidybert" if is_causal else "transformers",
    )
