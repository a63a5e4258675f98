"""Pack a pre-trained RUN as the weights in tidybert's package, and check them.

    python benchmarks/pack_model.py RUN src/tidybert/resources/tidybert-mini \
        --write docs/own-model.md

The script rounds the weights to float16.  They must answer like the RUN, in tidybert and in
transformers, and all files together must be under 25 MB; otherwise the script removes them.  Copy
the sha256 that it prints into src/tidybert/catalog.py.  --write puts a table of the weights and
their origin into a page, and the picture of their losses into the page's folder.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from side_by_side import put_between

from tidybert.atomic_files import atomic_directory
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.packing import check_logits, pack, probe_inputs, probe_logits
from tidybert.errors import TidyBertError
from tidybert.model_files import ARGUMENTS_FILE, METRICS_FILE
from tidybert.reporting.pretraining_curves import write_curves


def packed_and_checked(run: Path, directory: Path) -> dict[str, Any]:
    """Pack the RUN into ``directory``; both programs must agree before it replaces anything."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "packed"
        packed = pack(run, made)
        difference = compare_with_transformers(run, made)
        with atomic_directory(directory) as partial:
            shutil.copytree(made, partial, dirs_exist_ok=True)
    return {**asdict(packed), "difference_in_transformers": difference}


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
        "vocabulary": f"{config.vocab_size:,} pieces",
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
    shown = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]
    picture = picture_name(directory)
    return [*shown, "", f"![The losses over steps and tokens]({picture})"]


def picture_name(directory: Path) -> str:
    """The file name of the picture in the page's folder."""
    return f"{directory.name}-curves.svg"


def copy_curves(run: Path, picture: Path) -> None:
    """Draw the RUN's losses, and write the picture into the page's folder."""
    drawn = write_curves(run)
    assert drawn is not None
    picture.write_bytes(drawn.read_bytes())


def compare_with_transformers(run: Path, directory: Path) -> float:
    """The largest difference between transformers' logits from the pack and ours from the RUN.

    As a share of the largest logit; raises WeightsError if rounding cannot explain it.
    """
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    theirs, info = transformers.BertForPreTraining.from_pretrained(
        directory, dtype=torch.float32, output_loading_info=True
    )
    for key in ("missing_keys", "unexpected_keys"):
        if info[key]:
            raise SystemExit(f"transformers finds {key}: {', '.join(info[key])}")
    theirs.eval()
    ours = ModelDirectory(run)
    words, pairs = [], []
    with torch.inference_mode():
        for input_ids, token_type_ids in probe_inputs(ours):
            found = theirs(torch.tensor([input_ids]), token_type_ids=torch.tensor([token_type_ids]))
            words.append(found.prediction_logits[0])
            pairs.append(found.seq_relationship_logits[0])
    return check_logits(
        probe_logits(ours), [torch.cat(words), torch.stack(pairs)], f"{directory} in transformers"
    )


def main() -> None:
    """Pack and check the RUN, and print a JSON object about the pack."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="RUN of tidybert pretrain")
    parser.add_argument("directory", type=Path, metavar="DIR", help="folder of the packed model")
    parser.add_argument("--write", type=Path, help="write the table between its marks in this file")
    arguments = parser.parse_args()
    try:
        packed = packed_and_checked(arguments.run, arguments.directory)
    except TidyBertError as error:
        raise SystemExit(f"error: {error}") from None
    print(json.dumps(packed))
    if arguments.write:
        put_between(arguments.write, "pack_model", card(arguments.run, arguments.directory, packed))
        copy_curves(arguments.run, arguments.write.parent / picture_name(arguments.directory))


if __name__ == "__main__":
    main()
