"""Every command and every Python block on a page runs.

Commands that take minutes or the network (NOT_RUN) only have their flags checked.
"""

import contextlib
import functools
import gzip
import io
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter

from benchmarks.__main__ import SCRIPTS
from benchmarks.__main__ import main as benchmarks
from tidybert.cli import main as shell
from tidybert.cli.commands import quickstart
from tidybert.finetuning import head_start as contrastive
from tidybert.finetuning import run_finetuning as best_strategy

ROOT = Path(__file__).parents[2]
NOTES = ROOT / "benchmarks" / "NOTES.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), NOTES]
# test_scikit_learn_doc.py, test_serving_docs.py and test_search_doc.py run these.
PYTHON_RUN_ELSEWHERE = {"scikit-learn.md", "serving.md", "serving-clients.md", "search.md"}

# Each takes minutes, the network, or the whole checkout, so the tests check only its names.
NOT_RUN = (
    "make quickstart",
    "make test",
    "make fuzz ",
    "pip install ",
    "uv pip install ",
    "python3 -m venv ",
    ".venv/bin/python -m pip install ",
    "tidybert download ",
    "tidybert serve ",
    "tidybert page",
    "tidybert label ",
    "curl ",
    "python -m benchmarks",
    "python tests/check_types.py",
    "python -m pytest",
    "ruff ",
    "mypy",
)
EXAMPLES = 24


def blocks(page: Path) -> Iterator[tuple[str, int, str]]:
    """Language, number of the first line, and text of each fenced block."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield found[1], text[: found.start(2)].count("\n") + 1, found[2]


def commands(block: str) -> list[str]:
    lines = block.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def shell_commands() -> list[tuple[str, str]]:
    return [
        (page.name, command)
        for page in PAGES
        for language, _, block in blocks(page)
        if language == "sh"
        for command in commands(block)
    ]


def is_run(command: str) -> bool:
    # tests/cluster/test_ray.py and tests/cli/test_cluster.py start a cluster.
    return not command.startswith(NOT_RUN) and " --cluster " not in command


# --- every block is of a kind that some test covers


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_has_a_language_that_is_tested(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = list(blocks(page))
    assert 2 * len(found) == len(re.findall(r"^\s*```", text, re.MULTILINE)), "an open block"
    assert {language for language, _, _ in found} <= {"sh", "python", "javascript", "text"}
    for language, line, block in found:
        assert language != "text" or not re.search(r"^(\$ |tidybert )", block, re.MULTILINE), line


# --- commands that are run


def write_samples() -> None:
    """Small files under the names and in the layouts that the pages use."""

    def table(path: str, cells: str, header: str = "", encoding: str = "utf-8") -> None:
        """``cells`` has {n}, a number, {c}, 0 or 1, and {l}, no or yes."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        rows = [cells.format(n=n, c=n % 2, l=("no", "yes")[n % 2]) for n in range(EXAMPLES)]
        lines = "\n".join([header, *rows] if header else rows) + "\n"
        Path(path).write_text(lines, encoding=encoding)

    def objects(path: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        one = {
            str(n): {"text_a": f"text {n}", "text_b": "other", "label": ("no", "yes")[n % 2]}
            for n in range(EXAMPLES)
        }
        Path(path).write_text(json.dumps(one, indent=4))

    def questions(path: str) -> None:
        """As SQuAD 2.0; every third question is without an answer."""
        paragraphs = []
        for n in range(EXAMPLES):
            # No text is in two files.
            context = f"{Path(path).stem} {n} of mr smith is late again"
            answers = [{"text": "mr smith", "answer_start": context.index("mr")}] if n % 3 else []
            asked = {"id": f"q{n}", "question": "who is late", "answers": answers}
            qas = [{**asked, "is_impossible": not answers}]
            paragraphs.append({"context": context, "qas": qas})
        data = [{"title": "parcels", "paragraphs": paragraphs}]
        Path(path).write_text(json.dumps({"version": "v2.0", "data": data}))

    for name in ("tickets", "my-texts"):
        table(f"{name}.csv", "ticket {n},{l}", "text,label")
    table("tickets-dev.csv", "dev ticket {n},{l}", "text,label")
    columns = "text,label,label_status,drawn,row,by,at"
    table("labels.csv", "ticket {n},{l},labelled,chosen,{n},,2026-11-28 09:00:00+01:00", columns)
    Path("poem.txt").write_text("I bow my head and think of home once more.\n")
    Path("classes.csv").write_text("label,text\nno,all is well\nyes,it is late\n")
    for name, rows in (("mails", 72), ("more-mails", 9)):
        with xlsxwriter.Workbook(f"{name}.xlsx") as book:
            sheet = book.add_worksheet()
            sheet.write_row(0, 0, ["text", "label"])
            for n in range(1, rows + 1):
                # No two are near-duplicates, which one fold would have.
                words = "".join(chr(97 + (n * at * at + at) % 26) for at in range(20))
                sheet.write_row(n, 0, [f"{words} {n}", ("no", "yes")[n % 2]])
    words = "abcdefghijklmnopqrstuvwxyz"
    questions_of = [" ".join(words[n * at * at % 26] for at in range(1, 9)) for n in range(40)]
    Path("questions.txt").write_text("\n".join(questions_of) + "\n")
    table("questions-test.csv", "test question {n},{l}", "text,label")
    for name in ("new-tickets", "more-texts"):
        table(f"{name}.txt", "new ticket {n}")
    for name in ("questions", "questions-dev"):
        questions(f"{name}.json")
    asked = {"question": "who is late", "context": "mr smith is late again"}
    Path("new-questions.jsonl").write_text(f"{json.dumps(asked)}\n" * 3)
    table("similarity.csv", "one {n},two {n},{n}", "sentence1,sentence2,score")
    table("similarity-dev.csv", "three {n},four {n},{n}", "sentence1,sentence2,score")
    table("pairs.csv", "first {n},second {n}", "sentence1,sentence2")
    columns = "id,question,answer"
    table("faq.csv", "{n},is parcel {n} late,parcel {n} is on its way", columns)
    table("faq-dev.csv", "{n},is letter {n} late,letter {n} is on its way", columns)
    table("answers.tsv", "what {n}\tthat {n}\t{l}", "question\tanswer\tcorrect")
    table("export.csv", "{l};{n};Störung {n}", encoding="latin-1")
    lines = [json.dumps({"message": f"m {n}", "team": f"t{n % 2}"}) for n in range(EXAMPLES)]
    Path("tickets.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    for part in ("train", "dev"):
        table(f"glue/SST-2/{part}.tsv", f"{part} {{n}} \t{{c}}", "sentence\tlabel")
        head = "index\tsentence1\tsentence2\tlabel"
        table(f"glue/RTE/{part}.tsv", f"{{n}}\t{part} {{n}}\tother\t{{l}}", head)
        table(f"glue/STS-B/sts-{part}.csv", f"g\tf\t2012\t{{n}}\t{{n}}.5\t{part} {{n}}\tother")
        for task in ("QQP", "MNLI", "QNLI"):
            objects(f"glue/{task}/subset-{part}.json")
    table("glue/QNLI/dev.tsv", "{n}\twhat {n}\tthat\t{l}", "index\tquestion\tsentence\tlabel")
    for part in ("train", "val"):
        head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
        row = f'{{c}}\t1\t2\t"{part} {{n}}\tother'
        table(f"glue/MRPC/msr-para-{part}.tsv", row, head, encoding="utf-8-sig")
    table("text/sms_spam/SMSSpamCollection", "{l}\tmessage {n}")
    for part in ("train", "test"):
        table(f"text/banking77/{part}.csv", f"{part} {{n}},{{l}}", "text,category")
        table(f"text/trec/TREC.{part}.all", f"{{c}} {part} é {{n}} ?", encoding="latin-1")
    table("zh/chnsenticorp/train.tsv", "{c}\t酒店{n}", "label\ttext_a")
    table("news.txt", "Zoë {n} moved to New York.")
    columns = "Zoë NN I-NP B-PER\nlives VB I-VP O\nin{n} IN I-PP O\nRome NN I-NP B-LOC\n"
    for name in (
        "people.conll",
        "people-dev.conll",
        *(f"ner/conll2003/{part}.txt" for part in ("train", "dev")),
    ):
        table(name, columns)
    # A bound of 0.99 needs 299 entities.
    dev = Path("ner/conll2003/dev.txt")
    dev.write_text(13 * f"{dev.read_text()}\n")
    table("letters.csv", "{n},from Zoë to Rome,letter {n}", "id,text,subject")
    table("ner/wikigold/wikigold.conll.txt", "Zoë{n} I-PER\nlives O\n\n-DOCSTART- O\n")
    text, span = "Zoë lives in Rome.", {"start": 13, "end": 17, "label": "LOC"}
    lines = [json.dumps({"text": f"{text} {n}", "entities": [span]}) for n in range(EXAMPLES)]
    Path("spans.jsonl").write_text("\n".join(lines))
    marks = '"[{{""start"": 13, ""end"": 17, ""label"": ""LOC""}}]"'
    columns = "text,label,label_status,drawn,row,by,at"
    table("entities.csv", f"{text} {{n}},{marks},labelled,random,{{n}},,", columns)
    choices_and_label_sets(table)
    documents = [
        f"Article {n}. Mr smith is late.\nIt is a long text {n}. No." for n in range(EXAMPLES)
    ]
    Path("evaluation.txt").write_text(" ".join(f"word{number}" for number in range(20)) + "\n")
    for folder in ("articles", "notes"):
        Path(folder).mkdir()
    Path("notes/notes.txt").write_text("\n\n".join(f"note {n}\nand {n}" for n in range(60)) + "\n")
    Path("articles/part-00.txt").write_text("\n\n".join(documents) + "\n")
    lines = [json.dumps({"text": text.replace("smith", "jones")}) for text in documents]
    Path("articles/part-01.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))


def choices_and_label_sets(table: Callable[..., None]) -> None:
    for part in ("train", "dev"):
        table(f"choice/codah/{part}.tsv", "o\tthe dog {n}\tbarks\tflies\treads\tsings\t{c}")
    quiz = '{{"context": "it {n}", "question": "what", "choices": ["a {n}", "b"], "answer": {c}}}'
    table("quiz.jsonl", quiz)
    for name in ("comments", "comments-dev"):
        head = "id,comment_text,toxic,obscene,insult"
        table(f"{name}.csv", f"{{n}},{name} {{n}},{{c}},1,{{c}}", head)
    table("papers.csv", "paper {n},topic {c}; {l}", "title,topics")
    table("papers.jsonl", '{{"title": "paper {n}", "topics": ["topic {c}", "{l}"]}}')
    table("documents.csv", f"{'a long text ' * 20}{{n}},{{l}}", "text,label")


def run_line(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run ``tidybert …``, with ``echo … |`` before it or not, in this process."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|")
    lexer.whitespace_split = True
    words = list(lexer)
    if "|" in words:
        at = words.index("|")
        assert words[0] == "echo", f"{line}: only echo can come before tidybert"
        typed = " ".join(words[1:at]) + "\n"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
        words = words[at + 1 :]
    assert words[0] == "tidybert", f"{line}: run it here, or name it in NOT_RUN"
    assert shell.run(words[1:]) == 0, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_in_their_order(
    page: Path,
    small_weights_for_all: Callable[[bool], None],
    write_model: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
) -> None:
    from tidybert.checkpoints.converting import convert
    from tidybert.checkpoints.model_directory import ModelDirectory
    from tidybert.modeling import BertForPreTraining

    monkeypatch.setattr(quickstart, "NUM_TRAIN_EPOCHS", 0.1)
    monkeypatch.setattr(contrastive, "_FEWEST_GROUPS", 2)
    monkeypatch.setattr(best_strategy, "STEPS", 6)
    monkeypatch.chdir(tmp_path)
    write_samples()
    small_weights_for_all(True)
    write_model(Path("bert-base-uncased"), BertForPreTraining)
    convert(ModelDirectory("bert-base-uncased"), "uncased_L-2_H-128_A-2", "tensorflow")
    names: dict[str, Any] = {"__name__": "page"}
    for language, line, block in blocks(page):
        if language == "sh":
            for command in filter(is_run, commands(block)):
                run_line(command, monkeypatch)
        elif language == "python" and page.name not in PYTHON_RUN_ELSEWHERE:
            exec(compile("\n" * line + block, str(page), "exec"), names)
    if page.name == "README.md":
        # From 72 mails in Excel: a list of suspects, a measured model with a report, and answers.
        made = ("mails-check/check.html", "mails-check/corrections.csv", "mails-report/report.html")
        assert all(map(Path.is_file, map(Path, (*made, "answers.xlsx"))))
        report = json.loads(Path("mails-report/report.json").read_text())
        assert report["num_examples"] == 72
    capsys.readouterr()


# --- commands that are not run


@pytest.mark.parametrize("command", sorted({one for _, one in shell_commands() if not is_run(one)}))
def test_a_command_that_is_not_run_names_what_there_is(command: str) -> None:
    words = shlex.split(command, comments=True)
    if words[0] == "make":
        assert f"{words[1]}:" in (ROOT / "Makefile").read_text()
    elif words[0] == "tidybert":
        parse(shell.program(), words[1:])
    elif "install" in words:
        check_requirements(words[words.index("install") + 1 :])
    elif command.startswith("python -m benchmarks "):
        known = set(re.findall(r"--[\w-]+", help_of_script(words[3])))
        assert {word for word in words if word.startswith("--")} <= known
    else:
        for word in words[1:]:
            assert not re.match(r"(src|tests|docs|benchmarks)\b", word) or (ROOT / word).exists()


@functools.cache
def help_of_script(script: str) -> str:
    """What ``python -m benchmarks SCRIPT --help`` prints, from this process."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(printed):
        patched.setattr(sys, "argv", ["benchmarks", script, "--help"])
        with pytest.raises(SystemExit) as ended:
            benchmarks()
    assert not ended.value.code
    return printed.getvalue()


@functools.cache
def flags_of_benchmarks() -> set[str]:
    helps = (help_of_script(name) for scripts in SCRIPTS.values() for name in scripts)
    return {flag for text in helps for flag in re.findall(r"--[\w-]+", text)}


def parse(command: Any, words: list[str]) -> None:
    """Parse a command line and run nothing; click raises for what it does not know."""
    context = command.make_context(command.name or "tidybert", list(words), resilient_parsing=False)
    if hasattr(command, "commands"):
        rest = [*context._protected_args, *context.args]
        assert rest[0] in command.commands, f"no command is named {rest[0]}"
        parse(command.commands[rest[0]], rest[1:])


def check_requirements(words: list[str]) -> None:
    whole, light = (
        tomllib.loads((ROOT / place / "pyproject.toml").read_text())
        for place in ("", "packaging/light")
    )
    for word in words:
        extra = re.fullmatch(r"(\.|tidybert|\./packaging/light|tidybert-light)\[(\w+)\]", word)
        if extra:
            project = light if "light" in extra[1] else whole
            assert extra[2] in project["project"]["optional-dependencies"]
        elif word.startswith("torch>"):
            assert word in whole["tool"]["tidybert"]["requires"]


# --- the tree of the house


def test_the_tree_in_the_readme_is_the_one_there_is() -> None:
    (tree,) = (block for _, _, block in blocks(ROOT / "README.md") if block.startswith("src/"))
    named, folders = set(), {}
    for line in tree.splitlines():
        indent, path = re.match(r"( *)(\S+)", line).groups()
        depth = len(indent) // 2
        folders[depth] = folders[depth - 1] + path if depth else path
        named.add(folders[depth])
    for path in named:
        assert (ROOT / path).exists(), path
    rooms = {
        f"{path.parent.relative_to(ROOT)}/" for path in ROOT.glob("src/tidybert/*/**/__init__.py")
    }
    modules = {str(path.relative_to(ROOT)) for path in ROOT.glob("src/tidybert/[a-z]*.py")}
    assert rooms | modules <= named
