"""Models of a hub: fetched from a server on this machine, and found in the cache without any."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.hub_server import COMMIT, Hub, running_hub

from tidybert.catalog import find_model, hub_name
from tidybert.cli import main as shell
from tidybert.errors import ModelNotFoundError
from tidybert.storage.hub_files import HubName
from tidybert.storage.own_files import GrowingFile

NAME = "owner/tiny-bert"


@pytest.fixture
def hub(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one model, in whose cache nothing lies yet."""
    from huggingface_hub import constants

    folder = tmp_path / "on-hub"
    shutil.copytree(tiny_model, folder)
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"not for a MODEL" * 400)
    (folder / "tf_model.h5").write_bytes(b"nor this" * 400)
    with running_hub() as found:
        found.models[NAME] = folder
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", found.endpoint)
        template = f"{found.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        cache = str(tmp_path / "cache" / "hub")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", cache)
        yield found


def run(*arguments: str) -> int:
    return shell.run(list(arguments))


def test_a_model_is_fetched_and_then_has_its_name_everywhere(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("download", NAME) == 0

    shown = capsys.readouterr()
    directory = Path(shown.out.strip())
    assert "licence apache-2.0" in shown.err
    assert f"next: tidybert finetune classify {NAME}" in shown.err
    names = {path.name for path in directory.iterdir()}
    assert {"config.json", "vocab.txt", "model.safetensors"} <= names
    assert not {"onnx", "tf_model.h5"} & names
    assert find_model(NAME) == find_model(f"{NAME}@{COMMIT}") == directory
    # What the guide copies to carry it to another machine.
    carried = shutil.copytree(directory, tmp_path / "carried")
    assert run("tokenize", str(carried), "a red cat") == 0

    hub.requests.clear()
    assert run("tokenize", NAME, "a red cat") == 0
    assert run("info", NAME) == 0
    assert run("models") == 0
    assert NAME in capsys.readouterr().out
    assert hub.requests == []


def test_a_second_download_fetches_no_weights(hub: Hub) -> None:
    assert run("download", NAME) == 0
    hub.requests.clear()

    assert run("download", NAME) == 0

    assert hub.sent("GET", "model.safetensors") == []


def test_a_cut_connection_goes_on_where_it_ended(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 500)
    hub.cut = [1000]

    assert run("download", NAME) == 0

    assert "bytes=1000-" in [each for _, _, each in hub.requests]


def test_a_kill_loses_at_most_one_chunk(hub: Hub, tmp_path: Path) -> None:
    from huggingface_hub.constants import DOWNLOAD_CHUNK_SIZE

    content = os.urandom(5 << 20) * 5
    (hub.models[NAME] / "model.safetensors").write_bytes(content)
    hub.stall = 22 << 20
    folder = str(tmp_path / "cache")
    environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": folder}
    environment |= {"HF_HUB_CACHE": f"{folder}/hub", "HF_HUB_OFFLINE": "0"}
    words = [sys.executable, "-m", "tidybert", "download", NAME]
    child = subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)
    assert hub.stalled.wait(60)
    # Two chunks of the 22 MiB are whole; the disk may be slow to take the second.
    wait_for(lambda: any(each.stat().st_size >= 2 * DOWNLOAD_CHUNK_SIZE for each in parts()))
    child.kill()
    child.wait()
    (part,) = parts()
    assert part.stat().st_size > (22 << 20) - DOWNLOAD_CHUNK_SIZE
    size = part.stat().st_size

    assert run("download", NAME) == 0

    assert hub.sent("GET", "model.safetensors")[-1] == f"bytes={size}-"
    assert (find_model(NAME) / "model.safetensors").read_bytes() == content
    assert not parts()


@pytest.mark.parametrize("size", [0, 1, 3000, -1, None])
@pytest.mark.parametrize("is_wrong", [False, True])
def test_any_part_becomes_the_whole_file(hub: Hub, size: int | None, is_wrong: bool) -> None:
    from huggingface_hub.constants import HF_HUB_CACHE

    content = (hub.models[NAME] / "model.safetensors").read_bytes()
    blobs = Path(HF_HUB_CACHE) / f"models--{NAME.replace('/', '--')}" / "blobs"
    blobs.mkdir(parents=True)
    part = blobs / f"{hashlib.sha256(content).hexdigest()}.incomplete"
    there = content + b"more" if size is None else content[:size]
    part.write_bytes(bytes(len(there)) if is_wrong else there)

    assert run("download", NAME) == 0

    assert (find_model(NAME) / "model.safetensors").read_bytes() == content
    assert not parts()


def parts() -> list[Path]:
    """What is fetched in part."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return [*Path(HF_HUB_CACHE).rglob("*.incomplete")]


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_damaged_file_is_fetched_again(hub: Hub) -> None:
    assert run("download", NAME) == 0
    weights = find_model(NAME) / "model.safetensors"
    content = weights.read_bytes()
    weights.resolve().write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    assert run("download", NAME) == 0

    assert weights.read_bytes() == content


def test_a_hub_that_sends_other_bytes_is_an_error(
    hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.wrong = {"vocab.txt": 2}

    assert run("download", NAME) == 1

    assert "its hash is not the one that the hub states" in capsys.readouterr().err
    with pytest.raises(ModelNotFoundError):
        find_model(NAME)


def file_of(about: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in about["siblings"] if one["rfilename"] == name)
    return found


@pytest.mark.parametrize("place", ["/victim", "../../../victim", "refs", "0" * 63, "A" * 64])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_hash_that_is_a_path_writes_nothing(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, name: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    stated = str(victim) if place == "/victim" else place

    def lie(about: dict[str, Any]) -> None:
        of = file_of(about, name)
        of.get("lfs", of)["sha256" if "lfs" in of else "blobId"] = stated

    hub.lie = lie

    assert run("download", NAME) == 1

    shown = capsys.readouterr().err
    assert "the list of its files: siblings, item " in shown
    assert victim.read_text() == "mine"
    assert not (tmp_path / "cache").exists()
    assert len(hub.requests) == 1


def test_all_files_are_of_the_commit_that_was_listed(hub: Hub) -> None:
    hub.moved = True

    assert run("download", NAME) == 0

    assert find_model(NAME).name == COMMIT
    asked = {path for _, path, _ in hub.requests if "/resolve/" in path}
    assert {path.split("/")[4] for path in asked} == {COMMIT}


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_body_ends_one_byte_past_its_size(
    hub: Hub, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    hub.endless = {name: 200}

    assert run("download", NAME) == 1

    size = len(hub.files(NAME)[name])
    shown = capsys.readouterr().err
    assert f"sends more than the {size:,} bytes of {name} that it states; nothing of it" in shown
    assert not parts()
    assert hub.sent_bytes < 100 << 20


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk here")
def test_a_disk_that_is_full_at_the_last_byte_ends_the_download(
    hub: Hub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(GrowingFile):
        """Holds the last bytes back, and finds no room for them."""

        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            full = os.open("/dev/full", os.O_WRONLY)
            os.dup2(full, self._file.fileno())
            os.close(full)

    monkeypatch.setattr("tidybert.storage.hub_download.GrowingFile", Full)

    assert run("download", NAME) == 1

    assert "No space left on device" in capsys.readouterr().err
    assert len([path for _, path, _ in hub.requests if path.endswith("config.json")]) == 1


def test_a_list_without_end_is_an_error(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.endless = {"about": 200}

    assert run("download", NAME) == 1

    assert "the list of its files: " in capsys.readouterr().err
    assert hub.sent_bytes < 100 << 20


WRONG = [None, -1, "x", [3], {"x": 3}, 2**70]


def test_wrong_types_in_the_answer_get_a_sentence(
    hub: Hub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidybert.storage.hub_download.time.sleep", lambda seconds: None)

    def put(value: Any, *keys: str) -> Callable[[dict[str, Any]], object]:
        def lie(about: dict[str, Any]) -> None:
            of = about if len(keys) == 1 else file_of(about, "model.safetensors")
            for key in keys[1:-1]:
                of = of[key]
            of[keys[-1]] = value

        return lie

    places = [("sha",), ("siblings",), ("tags",)]
    places += [("file", key) for key in ("rfilename", "size", "blobId", "lfs")]
    places += [("file", "lfs", key) for key in ("sha256", "size")]
    for place in places:
        for value in WRONG:
            hub.lie = put(value, *place)
            status = run("download", NAME)
            shown = capsys.readouterr().err
            assert status in (0, 1), (place, value)
            assert status == 0 or shown.startswith(("error: ", "fetching", "\r")), shown
            assert "Traceback" not in shown


def test_what_is_there_needs_no_place_to_write(hub: Hub, tmp_path: Path) -> None:
    assert run("download", NAME) == 0
    before = sorted((tmp_path / "cache").rglob("*"))
    changed = {path: path.lstat().st_mtime_ns for path in before}

    assert run("download", NAME) == 0

    assert sorted((tmp_path / "cache").rglob("*")) == before
    assert {path: path.lstat().st_mtime_ns for path in before} == changed


def test_two_downloads_at_once_have_one_writer(hub: Hub, tmp_path: Path) -> None:
    (hub.models[NAME] / "model.safetensors").write_bytes(os.urandom(1 << 20))
    hub.stall = 1 << 19
    folder = str(tmp_path / "cache")
    environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HUB_OFFLINE": "0"}
    environment |= {"HF_HUB_CACHE": f"{folder}/hub"}
    words = [sys.executable, "-m", "tidybert", "download", NAME]
    child = subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)
    assert hub.stalled.wait(60)

    second = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)

    assert second.returncode == 1
    assert f"is in use by process {child.pid}" in second.stderr
    child.kill()
    child.wait()
    assert run("download", NAME) == 0


@pytest.mark.parametrize("revision", ["../../victim", "a/../b", "/etc", "a//b"])
def test_a_revision_is_no_path(hub: Hub, capsys: pytest.CaptureFixture[str], revision: str) -> None:
    assert run("download", f"{NAME}@{revision}") == 1
    assert "is no revision" in capsys.readouterr().err
    assert hub.requests == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["owner/typo"], "the hub shows no model 'owner/typo': a typo, or it is private"),
        ([f"{NAME}@v9"], f"{NAME} has no revision 'v9'"),
        (["owner/gated"], "owner/gated is gated: accept its terms"),
        (["owner/albert"], "the checkpoint is ALBERT"),
        (["owner/pickle"], "--allow-pickle fetches it"),
        (["owner/empty"], "owner/empty has no config.json"),
        (["no such name"], "no weights are named 'no such name'"),
    ],
)
def test_what_cannot_be_fetched_gets_a_sentence(
    hub: Hub,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    for name in ("gated", "albert", "pickle", "empty"):
        hub.models[f"owner/{name}"] = shutil.copytree(hub.models[NAME], tmp_path / name)
    hub.gated = {"owner/gated"}
    config = (tmp_path / "albert" / "config.json").read_text()
    config = config.replace("{", '{"model_type": "albert", ', 1).replace(
        '"model_type": "bert",', ""
    )
    (tmp_path / "albert" / "config.json").write_text(config)
    (tmp_path / "pickle" / "model.safetensors").rename(tmp_path / "pickle" / "pytorch_model.bin")
    (tmp_path / "empty" / "config.json").unlink()

    assert run("download", *arguments) == 1

    assert said in capsys.readouterr().err
    assert hub.sent("GET", "albert/resolve/main/model.safetensors") == []


def test_a_gated_model_takes_a_token(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated = {NAME}
    monkeypatch.setenv("HF_TOKEN", "hf_right")

    assert run("download", NAME) == 0


def test_a_pickle_is_fetched_on_request(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors.torch import load_file

    folder = hub.models[NAME]
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()

    assert run("download", NAME, "--allow-pickle") == 0

    assert (find_model(NAME) / "pytorch_model.bin").exists()
    assert f"next: tidybert finetune classify {NAME} --allow-pickle" in capsys.readouterr().err


def test_no_network_is_said(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    from huggingface_hub import constants

    constants.ENDPOINT = "http://127.0.0.1:9"

    assert run("download", NAME) == 1

    assert "cannot be reached" in capsys.readouterr().err


def test_a_name_that_is_not_there_names_the_command(
    hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tokenize", "bert-base-uncased", "a") == 1
    assert "tidybert download google-bert/bert-base-uncased" in capsys.readouterr().err
    assert run("tokenize", NAME, "a") == 1
    assert f"tidybert download {NAME}" in capsys.readouterr().err
    assert hub.requests == []


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("owner/name", HubName("owner/name")),
        ("owner/name@v1", HubName("owner/name", "v1")),
        ("bert-base-uncased", HubName("google-bert/bert-base-uncased")),
        ("some-name", None),
        ("a/b/c", None),
        ("./a", None),
        ("/a/b", None),
        ("a b", None),
    ],
)
def test_names(given: str, name: HubName | None) -> None:
    assert hub_name(given) == name


def test_transformers_finds_what_was_fetched(hub: Hub, tmp_path: Path) -> None:
    """In another process, which reads the cache's folder from the environment."""
    config = hub.models[NAME] / "config.json"
    config.write_text(json.dumps({"model_type": "bert", **json.loads(config.read_text())}))
    assert run("download", NAME) == 0
    environment = {
        **os.environ,
        "HF_HUB_CACHE": str(tmp_path / "cache" / "hub"),
        "HF_HUB_OFFLINE": "1",
    }
    program = f"from transformers import AutoModel; AutoModel.from_pretrained({NAME!r})"

    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_only_download_opens_a_connection(tiny_model: Path, tmp_path: Path) -> None:
    """With sockets refused, everything but download works as it did."""
    (tmp_path / "texts.txt").write_text("a red cat\n")
    program = f"""
import socket
def refused(*_):
    raise AssertionError("a connection")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refused
from tidybert.cli.main import run
model, texts = {str(tiny_model)!r}, {str(tmp_path / "texts.txt")!r}
for line in (
    ["models"], ["info", model], ["tokenize", model, "a cat"], ["embed", model, texts],
    ["tokenize", "owner/name", "a"], ["info", "bert-base-uncased"],
):
    print(line[0], run(line))
"""
    environment = {**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "0"}

    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )

    assert "a connection" not in done.stderr
    found = [line for line in done.stdout.splitlines() if line[-2:] in (" 0", " 1")]
    assert found == [
        "models 0", "info 0", "tokenize 0", "embed 0", "tokenize 1", "info 1",
    ]  # fmt: skip


def test_a_run_records_the_revision(hub: Hub, tmp_path: Path) -> None:
    assert run("download", NAME) == 0
    rows = "".join(f"a red cat {n},{'yes' if n % 2 else 'no'}\n" for n in range(12))
    (tmp_path / "train.csv").write_text(f"text,label\n{rows}")

    made = run(
        "finetune", "classify", NAME, "--train", str(tmp_path / "train.csv"),
        "--out", str(tmp_path / "run"), "--max-steps", "1", "--max-seq-length", "32",
    )  # fmt: skip

    assert made == 0
    arguments = json.loads((tmp_path / "run" / "arguments.json").read_text())
    assert (arguments["model"], arguments["record"]["revision"]) == (NAME, COMMIT)
    weights = hub.files(NAME)["model.safetensors"]
    assert arguments["record"]["weights_sha256"] == hashlib.sha256(weights).hexdigest()
