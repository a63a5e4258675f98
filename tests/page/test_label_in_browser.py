"""``tidybert label`` in a headless Chromium: a person labels, by keys and by the mouse."""

import csv
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import server_on_a_thread
from tests.page.test_labelling import (
    MARKED,
    SUBJECTS,
    TEXTS,
    examples,
    labels_in,
    right,
    tagged_in,
)

from tidybert.data.labels_file import CorrectionsFile, LabelsFile
from tidybert.errors import DataError
from tidybert.page.labelling import Labelling, LabelSettings, Suspect

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-core")
from tidybert.server.labelling import LabelDesk, label_app  # noqa: E402

NAMES = list(SUBJECTS)


class Visit:
    """A page of a labelling of its own, and what went wrong on it."""

    def __init__(self, browser: Any, tmp_path: Path, stack: ExitStack) -> None:
        self.path, self._browser, self._stack = tmp_path / "labels.csv", browser, stack
        self.wrong: list[str] = []

    def open(self, texts: Any = TEXTS, words: Any = None, **settings: Any) -> Any:
        given = examples(texts)
        how: Any = {"by": "", "is_pair": given[0].text_pair is not None}
        several = settings.get("multi_label", False)
        how["of_entities"] = settings.get("of_entities", False)
        store: Any = LabelsFile.opened(self.path, **how, multi_label=several)
        if "suspects" in settings:
            store = CorrectionsFile.opened(self.path)
        store = self._stack.enter_context(store)
        chosen = {"file": "texts.txt", "out": str(self.path), "model": None, **settings}
        labelling = Labelling(given, store, LabelSettings(**chosen))
        labelling.start()
        self.desk = LabelDesk(labelling, words)
        self._stack.callback(self.desk.close)
        server = server_on_a_thread(lambda engine: label_app(self.desk, engine), device="cpu")
        host, _ = self._stack.enter_context(server)
        self.host = f"http://{host}"
        context = self._browser.new_context(
            viewport={"width": 390, "height": 844}, color_scheme="dark"
        )
        self._stack.callback(context.close)
        page = context.new_page()
        page.on("console", self._look)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("request", self._follow)
        page.goto(self.host)
        page.wait_for_selector("#skip")
        return page

    def _look(self, message: Any) -> None:
        # A refusal is shown on the page; the browser's own line about it is no fault.
        if message.type in ("error", "warning") and "status of 422" not in message.text:
            self.wrong.append(message.text)

    def _follow(self, request: Any) -> None:
        if not request.url.startswith(self.host):
            self.wrong.append(request.url)


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Iterator[Visit]:
    with ExitStack() as stack:
        found = Visit(browser, tmp_path, stack)
        yield found
    assert found.wrong == []


def labels_or_none(path: Path) -> list[Any]:
    try:
        return labels_in(path)
    except DataError:
        return []


def text_of(page: Any) -> str:
    return page.locator(".asked").first.inner_text()


def press(page: Any, key: str) -> None:
    """Press a key, and wait for the text that follows."""
    before = page.locator("#text").inner_text()
    page.keyboard.press(key)
    page.wait_for_function(
        "before => document.getElementById('text').innerText !== before", arg=before
    )


def is_clean(page: Any) -> None:
    """No finding of axe, and nothing wider than the window."""
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    found = axe.Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"][:300]) for each in found] == []


def test_a_hundred_labels_by_one_key_each(visit: Visit) -> None:
    texts = [f"{text}?" for text in TEXTS] + TEXTS
    page = visit.open(texts, classes=NAMES, model="tidybert-small")
    said = []
    for _ in range(100):
        text = text_of(page)
        said.append((text, right(text)))
        press(page, str(1 + NAMES.index(right(text))))

    assert labels_in(visit.path) == said
    with visit.path.open(encoding="utf-8-sig", newline="") as file:
        drawn = [row["drawn"] for row in csv.DictReader(file)]
    assert drawn.count("random") == 20
    page.wait_for_function("() => document.body.innerText.includes('are right, of all texts')")
    assert page.locator(".belief").first.inner_text().endswith("%")
    is_clean(page)

    page.get_by_role("button", name="See errors").click()
    page.get_by_role("heading", name="Where the model and the labels differ").wait_for()
    is_clean(page)


def test_the_keyboard_alone_skips_takes_back_and_makes_a_class(visit: Visit) -> None:
    page = visit.open(classes=["one"])
    first = text_of(page)
    press(page, "s")
    press(page, "Backspace")
    assert text_of(page) == first
    assert page.get_by_role("status").first.inner_text() == "Taken back"

    page.keyboard.press("/")
    page.keyboard.type("a new one")
    press(page, "Enter")
    assert labels_in(visit.path) == [(first, "a new one")]
    press(page, "2")
    press(page, "0")
    view = visit.desk.labelling.view()
    assert (view["labelled"], view["none"]) == (2, 1)
    # Letters that no class has do nothing, and neither does any key once they are off.
    page.keyboard.press("z")
    page.get_by_label("Single keys act").uncheck()
    page.keyboard.press("1")
    assert visit.desk.labelling.view()["labelled"] == 2
    # Without keys there are buttons, which Tab reaches.
    page.locator("#class-0").focus()
    press(page, "Enter")
    assert visit.desk.labelling.view()["labelled"] == 3
    assert page.evaluate("document.activeElement.id") == "class-0"


def test_near_texts_are_ticked_and_labelled_at_once(visit: Visit) -> None:
    page = visit.open(TEXTS[:30], model="tidybert-small", classes=["x"])
    page.wait_for_selector("#near")
    page.keyboard.press("n")
    page.wait_for_selector("#tick-all")
    is_clean(page)
    page.keyboard.press("Space")
    page.locator("#panel input").nth(1).check()
    press(page, "1")
    assert len(labels_in(visit.path)) == 3
    assert "3 texts" in page.get_by_role("status").first.inner_text()


def test_sets_of_labels_of_pairs_are_toggled_and_kept(visit: Visit) -> None:
    markup = "<b>no</b> <script>alert(1)</script>"
    page = visit.open([(markup, "B"), ("איפה החשבון", "D")], multi_label=True, classes=["a", "b"])
    texts = [each.inner_text() for each in page.locator(".asked").all()]
    for key in "12":
        page.keyboard.press(key)
    assert page.locator("[aria-pressed=true][id^=class]").count() == 2
    press(page, "Enter")
    assert page.locator(".asked b, .asked script").count() == 0
    press(page, "Enter")
    page.get_by_text("Every text has been asked").wait_for()

    found = labels_in(visit.path, multi_label=True)
    assert found[0] == (texts[0], ("a", "b"))
    assert found[1][1] == ()


def test_words_are_marked_by_keys_and_by_the_mouse(visit: Visit) -> None:
    page = visit.open([MARKED, f"{MARKED}!"], of_entities=True, classes=["PER"])
    for key in ("ArrowRight", "1"):
        page.keyboard.press(key)
    for number in range(4):
        page.keyboard.press("Shift+ArrowRight" if number == 3 else "ArrowRight")
    page.keyboard.press("/")
    page.keyboard.type("LOC")
    page.keyboard.press("Enter")
    assert page.locator("#words .marked[data-word]").all_inner_texts() == [
        "ZoëPER",
        "New",
        "YorkLOC",
    ]
    assert page.locator("[aria-selected=true]").count() == 2
    is_clean(page)
    # Once more takes a mark off; another type takes its place.
    page.keyboard.press("2")
    assert page.locator("#words .marked[data-word]").count() == 1
    page.keyboard.press("2")
    press(page, "Enter")
    saved = tagged_in(visit.path)[0][1]
    assert saved[:7] == ("O", "B-PER", "O", "O", "B-LOC", "I-LOC", "O")

    def middle(word: int) -> tuple[float, float]:
        box = page.locator(f"#word-{word}").bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    page.mouse.move(*middle(4))
    page.mouse.down()
    page.mouse.move(*middle(5))
    page.mouse.up()
    page.locator("#class-1").click()
    page.locator("#word-1").click()
    page.keyboard.press("1")
    page.keyboard.press("Delete")
    page.keyboard.press("1")
    press(page, "Enter")
    page.get_by_text("Every text has been asked").wait_for()
    assert tagged_in(visit.path)[1][1][:7] == saved[:7]
    press(page, "Backspace")
    assert page.locator("#words .marked[data-word]").count() == 0
    press(page, "0")
    assert {*tagged_in(visit.path)[1][1]} == {"O"}
    view = visit.desk.labelling.view()
    assert (view["labelled"], view["none"]) == (2, 0)


def test_corrections_are_made_on_the_page(visit: Visit) -> None:
    visit.path.write_text(
        "row,label,suggested,correction,text,why\n1,no,yes,,fine,p 0.1\n2,no,yes,,good,p 0.2\n"
    )
    suspects = [Suspect("no", "yes", "p 0.1"), Suspect("no", "yes", "p 0.2")]
    page = visit.open(["fine", "good"], suspects=suspects, classes=["no", "yes"])
    assert "The probe says yes." in page.locator("#text").inner_text()
    said = [each.inner_text() for each in page.locator(".belief").all()]
    assert said == ["the label now", "the probe's"]
    is_clean(page)
    press(page, "2")
    press(page, "Enter")
    assert visit.path.read_text().splitlines()[1:] == [
        "1,no,yes,yes,fine,p 0.1",
        "2,no,yes,no,good,p 0.2",
    ]


def test_a_training_runs_beside_and_its_report_opens(visit: Visit, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    go_on = tmp_path / "go on"
    script.write_text(
        "import pathlib, sys, time\nout, report = map(pathlib.Path, sys.argv[1:])\nout.mkdir()\n"
        "print('training: 12%, loss 0.2, 1 of 8, 2.0/s, 0:03 left', flush=True)\n"
        "print('training: 25%, loss 0.1, 1 of 4, 2.0/s, 0:02 left', flush=True)\n"
        f"while not pathlib.Path({str(go_on)!r}).exists(): time.sleep(0.02)\n"
        "report.mkdir()\n(report / 'report.html').write_text('<h1>done</h1>')\nprint('step 1')\n"
    )
    page = visit.open(TEXTS[:5], lambda *folders: [str(script), *map(str, folders)], classes=["x"])
    assert httpx.get(f"{visit.host}/label/report").status_code == 404
    visit.desk.program = [sys.executable]
    press(page, "1")
    press(page, "1")
    page.get_by_role("button", name="Train now").click()
    bar = page.locator(".far i").nth(1)
    bar.wait_for()
    page.wait_for_function("document.querySelectorAll('.far i')[1].style.width === '25%'")
    assert page.locator(".lines").inner_text().count("training:") == 1
    go_on.touch()
    page.get_by_role("link", name="The report").wait_for()
    page.get_by_text("Trained:").wait_for()
    assert "step 1" in page.locator(".lines").inner_text()
    is_clean(page)
    with page.expect_popup() as opened:
        page.get_by_role("link", name="The report").click()
    assert opened.value.get_by_role("heading", name="done").inner_text() == "done"


def test_only_the_page_itself_may_ask(visit: Visit) -> None:
    visit.open(TEXTS[:5], classes=["x"])
    token = {"X-Tidybert-Token": visit.desk.token}
    with httpx.Client(base_url=visit.host) as client:

        def status(path: str, body: Any, **head: str) -> int:
            return client.post(f"/label/{path}", json=body, headers=head).status_code

        answer = {"number": 0, "labels": ["x"]}
        for path, body in (
            ("view", {}), ("answer", answer), ("show", {"number": 0}), ("back", {}),
            ("errors", {}), ("train", {}),
        ):  # fmt: skip
            assert status(path, body) == status(path, body, **{"X-Tidybert-Token": "x"}) == 403
            assert status(path, body, **token, Origin="http://evil.example") == 403
            assert status(path, body, **token, Host="evil.example") == 403
        assert labels_or_none(visit.path) == []
        assert status("answer", answer, **token) == 200
        assert status("answer", {**answer, "more": 1}, **token) == 422
        assert labels_or_none(visit.path) == [(TEXTS[0], "x")]
        assert visit.desk.token in client.get("/").text
        assert client.get("/", headers={"Host": "evil.example"}).status_code == 403
        for other in ("/predict", "/page/about", "/metrics", "/page/tokens"):
            assert client.get(other).status_code == 404
