"""The guide's one table of formats is what the code declares."""

from pathlib import Path

from tidybert.files.formats import FileFormats
from tidybert.files.text_files import FORMATS as TEXTS
from tidybert.tasks.multiple_choice import FORMATS as CHOICES
from tidybert.tasks.questions.question_files import FORMATS as QUESTIONS
from tidybert.tasks.tags.tag_files import FORMATS as TAGS

KINDS = {"texts": TEXTS, "choices": CHOICES, "questions": QUESTIONS, "tags": TAGS}
GUIDE = Path(__file__).parents[2] / "docs" / "finetuning.md"


def table(kinds: dict[str, FileFormats]) -> str:
    """Each format once, with the examples that are read from it."""
    read_for: dict[tuple[str, str, str], list[str]] = {}
    for kind, formats in kinds.items():
        for name, row in formats.rows.items():
            others = [suffix for suffix in row.suffixes if suffix != f".{name}"]
            suffixes = "".join(f" `{suffix}`" for suffix in others)
            read_for.setdefault((name, suffixes, row.what), []).append(kind)
    lines = ["| format, other suffixes | what | for |", "|---|---|---|"]
    for (name, suffixes, what), found in read_for.items():
        shown = "all" if len(found) == len(kinds) else ", ".join(found)
        lines.append(f"| `{name}`{suffixes} | {what} | {shown} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_formats() -> None:
    assert table(KINDS) in GUIDE.read_text(encoding="utf-8"), table(KINDS)
