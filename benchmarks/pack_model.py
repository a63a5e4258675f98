"""Pack a pre-trained RUN as the weights in tidybert's package, and check them.

The script rounds the weights to float16.  They must answer like the RUN, in tidybert and in
transformers, and all files together must be under 40 MB; otherwise nothing is written.  Copy the
sha256 that it prints into src/tidybert/catalog.py.  --write puts a table of the weights into a
page, and the picture of their losses into the page's folder.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from benchmarks.harness.script import markdown, parse, quiet_transformers, show
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.checkpoints.sentence_form import SentenceForm
from tidybert.checkpoints.tensor_files import check_finite
from tidybert.checkpoints.weights import from_huggingface
from tidybert.errors import WeightsError, param
from tidybert.modeling import BertForPreTraining, Rows
from tidybert.reporting.pretraining_curves import write_curves
from tidybert.storage.atomic_files import atomic_directory, file_sha256
from tidybert.storage.model_files import ARGUMENTS_FILE, METRICS_FILE, WEIGHTS_FILE

MAX_BYTES: Final = 40_000_000
#: Largest difference between logits, as a share of the largest logit.  Rounding changes a weight by
#: at most 2**-11 of itself; errors add up over the layers, so the limit is 16 times that.
TOLERANCE: Final = 2**-7
_PAIRS: Final = (
    ("Rome is the [MASK] of Italy.", "It hosts many government [MASK]."),
    ("The [MASK] sat on the mat, and the dog slept.", "In winter the days are [MASK] and cold."),
    ("What is it?", "She asked him twice, and he [MASK] nothing at all for a long time."),
)


def pack(run: Path, directory: Path) -> dict[str, Any]:
    """Write a float16 copy of a RUN of ``tidybert pretrain`` with both heads; replace an old one.

    Raises WeightsError where the RUN's files do not belong together or lack a head, where float16
    cannot hold the weights, and where the copy's logits differ or it is larger than MAX_BYTES.
    """
    origin = ModelDirectory(run)
    origin.verify()
    if origin.metadata is None or origin.metadata.task != "pretrain":
        raise WeightsError(
            f"{origin} is not a RUN of tidybert pretrain: only its RUNs can be packed"
        )
    expected, form = probe_logits(origin), None
    if "mean_cosine" in origin.metadata.metrics:
        # small_train taught the mean of all tokens, scaled.
        form = SentenceForm(normalize=True, max_seq_length=origin.metadata.max_seq_length)
    state = from_huggingface(origin.tensors(), origin.config).tensors
    rounded = {name: tensor.to(torch.float16) for name, tensor in state.items()}
    check_finite(rounded, f"{origin} in float16")
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "packed"
        save_model_directory(
            made, model_state=rounded, config=origin.config, tokenizer=origin.tokenizer,
            metadata=origin.metadata, architecture=BertForPreTraining.__name__,
            sentence=form,
        )  # fmt: skip
        mine = check_logits(expected, probe_logits(ModelDirectory(made)), str(directory))
        theirs = check_logits(expected, transformers_logits(made), f"{directory} in transformers")
        num_bytes = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
        if num_bytes > MAX_BYTES:
            raise WeightsError(
                f"{directory}: {num_bytes:,} bytes, but a package may carry at most {MAX_BYTES:,}: "
                "pre-train a smaller size, or with a smaller vocabulary"
            )
        with atomic_directory(directory) as partial:
            shutil.copytree(made, partial, dirs_exist_ok=True)
    return {
        "num_parameters": sum(tensor.numel() for tensor in rounded.values()),
        "num_bytes": num_bytes, "sha256": file_sha256(directory / WEIGHTS_FILE), "difference": mine,
        "difference_in_transformers": theirs,
    }  # fmt: skip


def probe_inputs(model: ModelDirectory) -> list[tuple[list[int], list[int]]]:
    """The input_ids and token_type_ids of a few pairs of sentences for this MODEL."""
    length = model.config.max_position_embeddings
    encodings = [
        model.tokenizer.encode(*pair, max_seq_length=length, special_tokens_in_text=True)
        for pair in _PAIRS
    ]
    return [(list(one.input_ids), list(one.token_type_ids)) for one in encodings]


def probe_logits(model: ModelDirectory) -> list[Tensor]:
    """The logits of both heads for ``probe_inputs``, in float32: (T, V) and (B, 2)."""
    network, report = model.build(BertForPreTraining)
    if report.new:
        raise WeightsError(
            f"{model} lacks {', '.join(report.new)}: pre-train with both heads "
            f"({param('objective', 'mlm+nsp')})"
        )
    input_ids, token_type_ids = zip(*probe_inputs(model), strict=True)
    with torch.inference_mode():
        found = network.eval()(Rows.from_lists(input_ids, token_type_ids))
    return [found.prediction_logits, found.seq_relationship_logits]


def transformers_logits(directory: Path) -> list[Tensor]:
    """The same by transformers, which must find every weight and no other."""
    theirs, info = quiet_transformers().BertForPreTraining.from_pretrained(
        directory, dtype=torch.float32, output_loading_info=True
    )
    for key in ("missing_keys", "unexpected_keys"):
        if info[key]:
            raise WeightsError(f"transformers finds {key}: {', '.join(info[key])}")
    theirs.eval()
    words, pairs = [], []
    with torch.inference_mode():
        for input_ids, token_type_ids in probe_inputs(ModelDirectory(directory)):
            found = theirs(torch.tensor([input_ids]), token_type_ids=torch.tensor([token_type_ids]))
            words.append(found.prediction_logits[0])
            pairs.append(found.seq_relationship_logits[0])
    return [torch.cat(words), torch.stack(pairs)]


def check_logits(expected: list[Tensor], found: list[Tensor], source: str) -> float:
    """The largest difference as a share of the largest logit, of both heads; at most TOLERANCE."""
    shares = [
        float((mine - other).abs().max() / mine.abs().max())
        for mine, other in zip(expected, found, strict=True)
    ]
    if not max(shares) <= TOLERANCE:
        raise WeightsError(
            f"{source}: a logit differs from the run's by {max(shares):.2%} of the largest logit; "
            f"float16 explains at most {TOLERANCE:.2%}"
        )
    return max(shares)


def card(run: Path, directory: Path, packed: Mapping[str, Any]) -> list[str]:
    """Markdown rows: what the weights are, how they were made, their held-out scores."""
    model = ModelDirectory(directory)
    config, metadata = model.config, model.metadata
    arguments = json.loads((run / ARGUMENTS_FILE).read_text(encoding="utf-8"))
    lines = map(json.loads, (run / METRICS_FILE).read_text(encoding="utf-8").splitlines())
    last = max((line for line in lines if "num_tokens" in line), key=lambda line: line["step"])
    assert metadata is not None
    metrics = metadata.metrics
    rows = {
        "layers, width, heads": f"{config.num_hidden_layers}, {config.hidden_size}, "
        f"{config.num_attention_heads}",
        "vocabulary": f"{config.vocab_size:,} tokens",
        "parameters, heads included": f"{packed['num_parameters']:,}",
        "files": f"{packed['num_bytes'] / 1e6:.1f} MB, weights in float16",
        "objective": arguments["objective"],
        "recipe": f"{arguments['recipe']}: {arguments['optimizer']}, peak rate "
        f"{arguments['learning_rate']:g}, {arguments['masked_lm_prob']:.0%} masked",
        "steps": f"{last['step']:,} of at most {arguments['tokens_per_step']:,} tokens",
        "tokens read": f"{last['num_tokens']:,}",
        "held-out masked words": f"{metrics['mlm_accuracy']:.1%} right, "
        f"perplexity {metrics['perplexity']:.1f}",
        "held-out pairs": f"{metrics['nsp_accuracy']:.1%} right",
    }
    shorter = f"/sequences of {metadata.max_seq_length}"
    if f"mlm_accuracy{shorter}" in metrics:
        words, pairs = (metrics[f"{name}_accuracy{shorter}"] for name in ("mlm", "nsp"))
        of_length = f"the same in sequences of {metadata.max_seq_length}"
        rows |= {of_length: f"words {words:.1%}, pairs {pairs:.1%} right"}
    if "mean_cosine" in metrics:
        rows |= {
            "teacher": f"{arguments['teacher']}, {arguments['teacher_sentences']} texts a step",
            "cosine to the teacher's held-out vectors": f"mean {metrics['mean_cosine']:.3f}, [CLS] "
            f"{metrics['cls_cosine']:.3f}",
        }
    picture = f"![The losses over steps and tokens]({picture_name(directory)})"
    return [*markdown(["", ""], list(rows.items())), "", picture]


def picture_name(directory: Path) -> str:
    """The file name of the picture in the page's folder."""
    return f"{directory.name}-curves.svg"


def pack_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="RUN of tidybert pretrain")
    parser.add_argument("directory", type=Path, metavar="DIR", help="folder of the packed model")
    given = parse(parser, "write")
    packed = pack(given.run, given.directory)
    print(json.dumps(packed))
    if given.write:
        show(card(given.run, given.directory, packed), given.write, "pack_model")
        drawn = write_curves(given.run)
        assert drawn is not None
        shutil.copy(drawn, given.write.parent / picture_name(given.directory))
