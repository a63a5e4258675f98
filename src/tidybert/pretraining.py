"""From a corpus of token shards to a pre-trained RUN, which is a MODEL.

config, then build, then train; see training/pretrainer.py for the loop, tasks/pretraining.py for
the loss, data/instances.py for what is learned from.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from tidybert.checkpoints.directory import ModelMetadata, save_model_directory
from tidybert.configuration import BertConfig
from tidybert.data.cooccurrence import token_vectors
from tidybert.data.instances import Position, PretrainingInstances
from tidybert.data.pretraining_options import InstanceOptions, MaskingOptions
from tidybert.data.shards import TokenCorpus, vocabulary_sha256
from tidybert.errors import UsageError
from tidybert.inference.loading import build_with_weights, choose_device
from tidybert.modeling.neighbours import attend_to_neighbours
from tidybert.pretrained import is_size, model_directory
from tidybert.tasks.pretraining import (
    InstanceStream,
    PretrainingModel,
    StepBatches,
    build_pretraining_model,
    longest_batch,
    loss_parts,
)
from tidybert.tokenization import BertTokenizer
from tidybert.training.background import snapshot
from tidybert.training.distributed import Processes
from tidybert.training.micro_batch import largest_micro_batch
from tidybert.training.precision import autocast, is_mixed
from tidybert.training.pretrainer import Pretrainer, PretrainingReport, PretrainingResult
from tidybert.training.pretraining_arguments import (
    MASKED_LM_PROB,
    PretrainingArguments,
    check_lengths,
    least_micro_batch,
    tokens_at,
)
from tidybert.training.runs import check_run, write_arguments
from tidybert.training.sharding import load_weights
from tidybert.training.state import checkpoints_directory

_MICRO_BATCH_TOKENS: Final = {"cpu": 4096, "cuda": 32_768}
# Dense bfloat16 operations a second, as NVIDIA states them.
_PEAK_FLOPS: Final = {"H200": 989e12, "H100": 989e12, "A100": 312e12}
_HELD_OUT_SEED: Final = 0
# Of word and position embeddings that begin with something; docs/pretraining.md has what it brings.
_CORPUS_START_STD: Final = 0.05


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
    network, config = _build(model, corpus, arguments, instances, callbacks.note)
    check_lengths(arguments, instances.max_seq_length, config.max_position_embeddings)
    has_corpus_start = is_size(model) and arguments.start == "corpus"
    # Sharding and compiling change the network in place.
    unchanged = deepcopy(network) if has_corpus_start else None
    chosen = choose_device(device if processes.size == 1 else _local(device, processes))
    network.to(chosen)
    network.bert.encoder.checkpoint_activations = arguments.checkpoint_activations
    micro = _micro_batch_tokens(
        network, instances, masking, arguments, processes, chosen, callbacks.note
    )
    if arguments.compile:
        network.bert.encoder.compile_rows()
    stream = _Phases(corpus, instances, masking, arguments, micro, processes)
    for each in stream.streams:
        if each.shape is not None:
            callbacks.note(
                f"micro-batches of {each.shape.num_rows:,} rows, {each.shape.num_sequences:,} "
                f"sequences and {each.shape.num_predictions:,} predictions, filled up with padding"
            )
    held_out = _HeldOut(data, instances, masking, arguments, stream.streams[0], chosen)
    peak = peak_flops() if chosen.type == "cuda" else None
    flops = flops_per_token(config, instances.max_seq_length, masking.predicted_share)
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
        peak_tokens_per_second=peak * processes.size / flops if peak else None,
    )
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
        load_weights(network, _start_from_corpus(unchanged, corpus, arguments, callbacks.note))
    del unchanged
    if processes.is_first:
        values = {**asdict(instances), **asdict(masking), **arguments.to_dict()}
        if not is_size(model):
            values["start"] = None
        write_arguments(run, {"task": "pretrain", "model": str(model), "data": str(data), **values})
    result = trainer.train()
    if peak is not None and processes.is_first:
        share = flops * result.num_tokens / result.seconds / (peak * processes.size)
        callbacks.note(
            f"{share:.1%} of the peak of {processes.size} x {torch.cuda.get_device_name()}"
        )
    weights = snapshot(network.state_dict(), processes.is_first)
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
            architecture=type(network).__name__,
        )
        # The best weights now stand at the RUN's root.
        shutil.rmtree(checkpoints_directory(run) / "best", ignore_errors=True)
    return result


def flops_per_token(config: BertConfig, sequence_length: float, masked_share: float) -> float:
    """Floating-point operations of a training step for each token, forward and backward.

    6 for each weight of a matrix that the token goes through (Kaplan et al. 2020), 12 L H S for the
    scores and their sums over S tokens, and the head for the share of tokens that are masked.
    """
    layers, width = config.num_hidden_layers, config.hidden_size
    weights = layers * (4 * width**2 + 2 * width * config.intermediate_size)
    head = masked_share * (width**2 + width * config.vocab_size)
    return 6 * (weights + head) + 12 * layers * width * sequence_length


def peak_flops() -> float | None:
    """What the CUDA device can do in bfloat16 a second; None where it is not known, or a CPU."""
    if not torch.cuda.is_available():
        return None
    name = torch.cuda.get_device_name()
    return next((peak for known, peak in _PEAK_FLOPS.items() if known in name), None)


class _Phases:
    """Steps on sequences of one length, and the last share of them on longer ones.

    A position is [phase, epoch, group, offset].
    """

    def __init__(
        self,
        corpus: TokenCorpus,
        options: InstanceOptions,
        masking: MaskingOptions,
        arguments: PretrainingArguments,
        micro_batch_tokens: int,
        processes: Processes,
    ) -> None:
        self.arguments = arguments
        num_steps = arguments.setting("max_steps")
        self.switch = num_steps - int(num_steps * arguments.setting("long_share"))
        lengths = [options.max_seq_length]
        if self.switch < num_steps:
            lengths.append(arguments.long_seq_length)
        self.streams = [
            InstanceStream(
                PretrainingInstances(
                    corpus, replace(options, max_seq_length=length), masking, arguments.seed
                ),
                arguments.setting("tokens_per_step"),
                micro_batch_tokens,
                processes.rank,
                processes.size,
                arguments.compile,
            )
            for length in lengths
        ]

    def take(self, step: int, position: list[int]) -> StepBatches:
        """The batches of a step."""
        phase = int(step >= self.switch)
        place = Position(*position[1:])
        if phase != position[0]:
            # Longer sequences begin with a new order of the documents.
            place = Position(epoch=place.epoch + 1)
        taken = self.streams[phase].take(place, tokens_at(step, self.arguments))
        after = taken.position
        return replace(taken, position=[phase, after.epoch, after.group, after.offset])


class _HeldOut:
    """Held-out documents, the same instances with the same masks each time."""

    def __init__(
        self,
        data: str | Path,
        options: InstanceOptions,
        masking: MaskingOptions,
        arguments: PretrainingArguments,
        training: InstanceStream,
        device: torch.device,
    ) -> None:
        corpus = TokenCorpus(data, "held-out")
        instances = PretrainingInstances(corpus, options, masking, _HELD_OUT_SEED)
        stream = InstanceStream(instances, arguments.eval_tokens, training.micro_batch_tokens)
        # The graphs that training compiled serve here too.
        stream.shape = training.shape
        self.taken = stream.take(Position())
        self.device = device
        self.is_mixed = is_mixed(arguments.precision, device)

    def measure(self, model: nn.Module) -> dict[str, Any]:
        """loss, and of each part its loss and accuracy; perplexity of the masked words."""
        sums = dict.fromkeys(self.taken.counts, 0.0)
        correct = dict.fromkeys(self.taken.counts, 0.0)
        with (
            # Not inference mode: what a sharded model gathers in it could not serve a backward.
            torch.no_grad(),
            autocast(self.device, self.is_mixed),
        ):
            for batch in self.taken.batches:
                for name, part in loss_parts(model, batch.to(self.device)).items():
                    sums[name] += part.total.item()
                    correct[name] += part.correct.item()
        losses = {name: each / self.taken.counts[name] for name, each in sums.items()}
        return {
            "loss": sum(losses.values()),
            "perplexity": math.exp(min(losses["mlm"], 700.0)),
            **{f"{name}_loss": each for name, each in losses.items()},
            **{
                f"{name}_accuracy": each / self.taken.counts[name] for name, each in correct.items()
            },
        }


def _build(
    model: str | Path,
    corpus: TokenCorpus,
    arguments: PretrainingArguments,
    instances: InstanceOptions,
    note: Callable[[str], None],
) -> tuple[PretrainingModel, BertConfig]:
    """The model with its heads, and the configuration that is saved with it."""
    build = build_pretraining_model(instances.objective)
    rate = arguments.setting("dropout")
    if is_size(model):
        config = BertConfig.from_name(
            str(model), vocab_size=int(corpus.manifest.vocabulary["vocab_size"])
        )
        while_training = _with_dropout(config, rate)
        network = build(while_training)
        note(f"{model}: random weights, {config.num_parameters / 1e6:.1f} M parameters")
        return network, config
    directory = model_directory(model)
    vocabulary = BertTokenizer.from_pretrained(directory).vocabulary
    if vocabulary_sha256(vocabulary) != corpus.manifest.vocabulary["sha256"]:
        raise UsageError(
            f"{model} and the corpus in {corpus.directory} have different vocabularies; build the "
            f"corpus with --vocab {model}"
        )
    config = BertConfig.from_file(directory / "config.json")
    network, report = build_with_weights(build, _with_dropout(config, rate), directory)
    note(report.summary())
    return network, config


def _start_from_corpus(
    network: PretrainingModel,
    corpus: TokenCorpus,
    arguments: PretrainingArguments,
    note: Callable[[str], None],
) -> dict[str, Tensor]:
    """The weights with what need not be learned: words alike, their frequencies, neighbours.

    The network, on the CPU, is changed.
    """
    embeddings = network.bert.embeddings.word_embeddings.weight
    found = token_vectors(corpus, embeddings.shape[1], seed=arguments.seed)
    scale = _CORPUS_START_STD / network.config.initializer_range
    seen = torch.from_numpy(found.counts > 0)
    with torch.no_grad():
        # What was not seen stays random, of the same size.
        embeddings *= scale
        embeddings[seen] = _CORPUS_START_STD * torch.from_numpy(found.vectors)[seen]
        frequencies = torch.from_numpy(found.counts + 1.0)
        network.mlm.bias.copy_((frequencies / frequencies.sum()).log())
    attend_to_neighbours(network.bert, _CORPUS_START_STD, arguments.seed)
    note(
        f"start from the corpus: {int(seen.sum()):,} words' embeddings by what stands near them in "
        f"{found.num_tokens:,} tokens, and heads that look at neighbours; --start random leaves "
        "that out"
    )
    return network.state_dict()


def _micro_batch_tokens(
    model: PretrainingModel,
    instances: InstanceOptions,
    masking: MaskingOptions,
    arguments: PretrainingArguments,
    processes: Processes,
    device: torch.device,
    note: Callable[[str], None],
) -> int:
    """--micro-batch-tokens, its default, or what fits the memory of every process's device."""
    given, default = arguments.micro_batch_tokens, _MICRO_BATCH_TOKENS[device.type]
    if isinstance(given, int):
        return given
    if given is None or device.type == "cpu":
        if given is not None:
            note(f"--micro-batch-tokens auto: {default:,}, for the device is a CPU")
        return default
    longest = instances.max_seq_length
    if arguments.setting("long_share"):
        longest = max(longest, arguments.long_seq_length)
    least = least_micro_batch(arguments, longest)
    found = largest_micro_batch(
        model,
        loss_parts,
        lambda tokens: longest_batch(
            tokens, longest, masking.num_predictions(longest), instances.pairs
        ),
        start=default,
        least=least,
        # A process has no more of a step, but for the last sequence.
        most=max(least, arguments.setting("tokens_per_step") // processes.size + longest),
        mixed=is_mixed(arguments.precision, device),
        processes=processes,
    )
    note(f"--micro-batch-tokens auto: {found:,} at once fit, with a margin")
    return found


def _with_dropout(config: BertConfig, rate: float) -> BertConfig:
    return replace(config, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)


def _local(device: str, processes: Processes) -> str:
    """The device of one process of several."""
    on_cuda = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    return f"cuda:{processes.local_rank}" if on_cuda else "cpu"


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
