"""Time a hub's model, fetched from a server on this machine, beside a copy of it and its hash.

    python -m benchmarks download --rounds 7

The weights are random bytes.  The server is a process of its own; both sides end on the disk.
"""

import argparse
import hashlib
import multiprocessing
import os
import shutil
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from tests.hub_server import running_hub

from benchmarks.harness import script
from tidybert.catalog import find_model
from tidybert.configuration import BertConfig
from tidybert.storage.hub_download import fetch_model
from tidybert.storage.hub_files import HubName
from tidybert.storage.own_files import sync

NAME: Final = "owner/model"


def serve(folder: Path, address: Any) -> None:
    """Serve the folder as a model, from memory, until this process is ended."""
    with running_hub() as hub:
        hub.models[NAME] = folder
        files = hub.files(NAME)
        hub.files = cache(lambda _: files)  # type: ignore[method-assign]
        address.put(hub.endpoint)
        multiprocessing.Event().wait()


def bench_download(megabytes: int, rounds: int) -> dict[str, Any]:
    """Seconds of each side, and those of the processor in this process."""
    from huggingface_hub import constants

    with tempfile.TemporaryDirectory() as given:
        folder, weights = Path(given), Path(given) / "served" / "model.safetensors"
        weights.parent.mkdir()
        for name in ("config.json", "vocab.txt"):
            shutil.copy(find_model("tidybert-small") / name, weights.parent / name)
        weights.write_bytes(os.urandom(megabytes * 10**6))
        address: Any = multiprocessing.Queue()
        server = multiprocessing.Process(target=serve, args=(weights.parent, address), daemon=True)
        server.start()
        constants.ENDPOINT = address.get()
        path = "{repo_id}/resolve/{revision}/{filename}"
        constants.HUGGINGFACE_CO_URL_TEMPLATE = f"{constants.ENDPOINT}/{path}"
        constants.HF_HUB_OFFLINE, constants.HF_HUB_CACHE = False, str(folder / "cache")

        def copy() -> None:
            sync(Path(shutil.copyfile(weights, folder / "copy")))
            with (folder / "copy").open("rb") as opened:
                hashlib.file_digest(opened, "sha256")

        def measure(side: str) -> dict[str, float]:
            fetch = partial(fetch_model, HubName(NAME), check=BertConfig.from_file)
            _, seconds, used = script.timed(fetch if side == "download" else copy)
            shutil.rmtree(folder / "cache", ignore_errors=True)
            (folder / "copy").unlink(missing_ok=True)
            return {"seconds": seconds, "processor": used}

        result = script.take_rounds(("download", "copy and hash"), rounds, measure)
        server.terminate()
    return {"megabytes": megabytes, **result}


def download(parser: argparse.ArgumentParser) -> None:
    script.add_number(parser, "megabytes", 90, "of weights")
    given = script.parse(parser, "rounds json", rounds=7)
    result = bench_download(given.megabytes, given.rounds)
    rows = {"seconds": "seconds", "of the processor": "processor"}
    script.print_speed(given, f"{given.megabytes} MB of weights", result, rows)
