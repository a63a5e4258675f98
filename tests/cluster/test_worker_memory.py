"""A worker's memory over a long job: TIDYBERT_ROWS=1000000 python -m pytest THIS; six minutes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROWS = int(os.environ.get("TIDYBERT_ROWS", "0"))
_FILE = 10_000
PROGRAM = """
import sys
from pathlib import Path
from tidybert.cluster.input_files import InputFile, this_version
from tidybert.cluster.ray_engine import FileWorker
from tidybert.inference.text_jobs import EmbedJob

model, folder, count = sys.argv[1:]
work = EmbedJob(model=model, options={"device": "cpu"})
known = {"tidybert": this_version(), "model": work.fingerprint()}
worker = FileWorker(work, known, Path(folder) / "out")
source = Path(folder) / "in.jsonl"
for number in range(int(count)):
    outcome = worker(InputFile(str(number), str(source), source.stat().st_size, ""))
    assert outcome.error is None, outcome
    (Path(folder) / "out" / outcome.done.output).unlink()
    (line,) = (x for x in open("/proc/self/status") if x.startswith("VmRSS"))
    print(int(line.split()[1]), flush=True)
"""


@pytest.mark.skipif(not ROWS, reason="takes minutes: TIDYBERT_ROWS=1000000")
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    import numpy as np

    from tidybert.checkpoints.tensor_files import write_tensors
    from tidybert.checkpoints.weights import to_huggingface
    from tidybert.configuration import BertConfig
    from tidybert.modeling import BertModel
    from tidybert.tokenization import BertTokenizer

    words = [f"w{number}" for number in range(500)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=512,
        max_position_embeddings=64,
    )
    (tmp_path / "model").mkdir()
    write_tensors(tmp_path / "model", to_huggingface(BertModel(config).state_dict(), config))
    (tmp_path / "model" / "config.json").write_text(json.dumps(config.to_dict()))
    BertTokenizer(vocabulary).save(tmp_path / "model")
    random = np.random.default_rng(0)
    with (tmp_path / "in.jsonl").open("w") as file:
        for length in random.integers(1, 24, _FILE):
            file.write(json.dumps({"text": " ".join(random.choice(words, length))}) + "\n")
    line = [sys.executable, "-c", PROGRAM, str(tmp_path / "model"), str(tmp_path)]

    done = subprocess.run(
        [*line, str(ROWS // _FILE)], capture_output=True, text=True, check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip

    sizes = [int(each) for each in done.stdout.split()]
    print(f"\nKiB after {_FILE:,} rows {sizes[0]:,}, at the end {sizes[-1]:,}, most {max(sizes):,}")
    assert max(sizes) <= 1.05 * sizes[0]
