"""Only regular files of a limited size are read, and a link that leads nowhere is not "absent"."""

import os
import re
import socket
from pathlib import Path

import pytest

import tidybert
from tidybert.errors import ConfigError, DataError, LimitError
from tidybert.storage import limits
from tidybert.storage.limits import Limit
from tidybert.storage.opening import open_regular, present, read_bytes, read_text

TEN = Limit("a test's file", 10, "bytes")


def test_a_regular_file_and_a_link_to_it_are_read(tmp_path: Path) -> None:
    path, link = tmp_path / "a.txt", tmp_path / "link"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb")
    link.symlink_to(path)

    assert read_bytes(link, TEN) == b"\xef\xbb\xbfa\r\nb"
    assert read_text(path, TEN) == "a\r\nb"


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "socket", "dangling", "missing"])
def test_anything_else_is_an_error_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "config.json"
    said = {
        "pipe": "it is a named pipe",
        "device": "it is a device",
        "folder": "it is a folder",
        "socket": "it is not a regular file",
        "dangling": "it is a link to nowhere.json, where there is nothing",
        "missing": "no such file",
    }[kind]
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "dangling":
        path.symlink_to("nowhere.json")
    with socket.socket(socket.AF_UNIX) as listening:
        if kind == "socket":
            listening.bind(os.path.relpath(path))

        with pytest.raises(ConfigError, match=f"{path}: cannot be read: {said}"):
            read_bytes(path, TEN, error=ConfigError)


def test_a_pipe_that_the_user_names_is_read(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, b"abc")
    os.close(write)

    with open_regular(f"/dev/fd/{read}", allow_pipe=True) as file:
        assert file.read() == b"abc"
    os.close(read)


def test_only_a_name_that_nothing_has_is_absent(tmp_path: Path) -> None:
    file, dangling, loop = tmp_path / "file", tmp_path / "dangling", tmp_path / "loop"
    file.touch()
    dangling.symlink_to("nowhere")
    loop.symlink_to(loop)

    assert present(file)
    assert not present(tmp_path / "absent")
    assert not present(file / "below")
    for link in (dangling, loop):
        with pytest.raises(DataError, match=f"{link}: cannot be read"):
            present(link)


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_name_that_no_file_can_have_is_an_error(tmp_path: Path, name: str) -> None:
    for look in (present, open_regular):
        with pytest.raises(DataError, match="cannot be read"):
            look(f"{tmp_path}/{name}")


def test_a_file_above_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 11)

    TEN.check(10, path)
    with pytest.raises(LimitError, match=f"{path}: 11 bytes; the limit for a test's file is 10$"):
        read_bytes(path, TEN)


def test_no_two_limits_have_one_name() -> None:
    table = [each for each in vars(limits).values() if isinstance(each, Limit)]

    assert len({(each.name, each.unit) for each in table}) == len(table)


def test_a_byte_that_is_not_utf_8_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"a\nb\xff")

    with pytest.raises(DataError, match=f"{path}:2: not UTF-8"):
        read_text(path, TEN)


PACKAGE = Path(tidybert.__file__).parent
# Ways to open a file, or to ask for one, that follow a link to nowhere or wait for a pipe.
UNGUARDED = re.compile(
    r"\.read_(text|bytes)\(|(?<![\w.])(?<!def )open\("
    r"|(?<!ModelDirectory)(?<!Index)(?<!engine)(?<!CrossEncoder)\.open\((?!model|run)"
    r"|json\.load\(|safe_open\(|np\.(load|fromfile|memmap)\("
)
OWN_FILES = {
    "storage/opening.py": "this is the guard",
    "storage/own_files.py": "opens with O_NOFOLLOW",
    "storage/part_file.py": "opens through own_files",
    "storage/output_lock.py": "reads a file of the system",
    "storage/remote_files.py": "opens what lies in a store, not on this machine",
    "system/cores.py": "reads files of the system",
    "modeling/kernels/processor.py": "reads a file of the system",
    "cli/main.py": "opens the process's own streams",
    "reporting/report_page.py": "reads resources of the package",
    "cli/commands/quickstart.py": "reads a resource of the package",
    "page/page_model.py": "reads resources of the package",
    "reporting/drawing.py": "reads a resource of the package",
    "training/fine_tuning.py": "maps a temporary file of its own",
    "inference/answer_files.py": "reads its own part, which is locked",
    "checkpoints/tensor_files.py": "the library opens the file after the guard did",
    "corpus": "opens shards whose sizes and hashes it checks",
    "cluster/index_job.py": "maps its own parts, whose hashes the workers noted",
    "cluster/input_files.py": "reads the package's own code",
    "unlabelled/topics.py": "reads arrays of bytes that the guard read",
    "search/index_format.py": "maps files whose hashes it checks",
}


def test_no_other_module_opens_a_foreign_file_by_itself() -> None:
    """A reader calls open_regular, read_bytes, read_text or present, or is named above."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        if any(name == own or name.startswith(f"{own}/") for own in OWN_FILES):
            continue
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            assert not UNGUARDED.search(line), f"{path}:{number} opens a file without opening.py"
