"""The page in a headless Chromium: every tab as a person would use it."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import server_on_a_thread
from tests.page.conftest import EVIL

from tidybert import Embedder, Index
from tidybert.files.text_examples import TextExample
from tidybert.search.index_files import write_index

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-core")

TABS = {
    "tokens": "The embeddings of",
    "gap": "In place of",
    "attention": "All heads",
    "next": "B follows A",
    "answer": "The runners-up",
    "entities": "The tag of each word",
    "classify": "What each word adds",
    "choose": "The choices",
    "search": "The nearest texts",
    "words": "Words on a map",
    "training": "The loss of the words",
    "left": "The next token",
}
SMALL = "tidybert-small"
FAQ = ["Where is my bill?", "The parcel is late.", "It has <b>no</b> key.", "איפה החשבון"]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of FAQ that tidybert-small made."""
    directory = tmp_path_factory.mktemp("search") / "faq-index"
    examples = [
        TextExample(text, None, None, row, columns={"answer": f"See {row}"})
        for row, text in enumerate(FAQ, 2)
    ]
    write_index(Embedder(SMALL, normalize=True), examples, directory, model=SMALL)
    return directory


@pytest.fixture(scope="module")
def host(served: dict[str, str], index: Path) -> Iterator[str]:
    """A server with tidybert-small, an index, and a tiny model of each task."""
    names = ("questions", "tags", "colours", "choices", "poem")
    models = {SMALL: SMALL, **{name: served[name] for name in names}}
    with server_on_a_thread(models=models, device="cpu", index=index) as (address, _):
        yield f"http://{address}/"


@pytest.fixture
def visit(browser: Any, host: str) -> Iterator[Callable[..., Any]]:
    """Opens an address of the page; the end of a test looks for errors and foreign requests."""
    wrong: list[str] = []
    contexts = []

    def look(message: Any) -> None:
        # A refusal is shown on the page; the browser's own line about it is no fault.
        if message.type in ("error", "warning") and "status of 422" not in message.text:
            wrong.append(message.text)

    def follow(request: Any) -> None:
        if not request.url.startswith((host, "data:", "blob:")):
            wrong.append(request.url)

    def open_page(query: str = "", **given: Any) -> Any:
        contexts.append(browser.new_context(**{"accept_downloads": True, **given}))
        page = contexts[-1].new_page()
        page.on("console", look)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", follow)
        page.goto(f"{host}?{query}")
        settled(page)
        return page

    yield open_page
    for each in contexts:
        each.close()
    assert wrong == []


def settled(page: Any) -> None:
    page.wait_for_selector("#results[aria-busy=false]")


def changed(page: Any, *, to: str) -> None:
    """Wait for the address to have a part, and for what it shows."""
    page.wait_for_function("part => location.search.includes(part)", arg=to)
    settled(page)


@pytest.mark.parametrize("tab", TABS)
def test_a_tab_shows_itself_without_a_serious_finding(tab: str, visit: Any) -> None:
    # The model that answers questions has few positions.
    short = "&question=the+cat&text=the+old+dog+was+near" if tab == "answer" else ""
    page = visit(f"tab={tab}{short}", viewport={"width": 390, "height": 800}, color_scheme="dark")

    assert page.get_by_role("heading", name=TABS[tab]).first.is_visible()
    assert page.get_by_role("heading", name="The same in Python").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    found = axe.Axe().run(page).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], each["nodes"][0]["html"][:300]) for each in serious] == []


def test_tokens_link_pieces_and_characters_and_add_embeddings(visit: Any) -> None:
    page = visit("text=Hi+😀+penguins&pair=", color_scheme="light")
    piece = page.locator("button.piece", has_text="##").first
    piece.hover()
    marked = page.locator(".source .linked").first.inner_text()
    assert piece.inner_text().splitlines()[0].removeprefix("##") == marked.lower()
    piece.click()
    changed(page, to="at=")
    assert page.get_by_role("heading", name="The embeddings of ##").is_visible()
    assert page.locator(".strip canvas").count() == 5

    page.get_by_label("Text", exact=True).fill("<b>hello</b>")
    changed(page, to="text=%3Cb")
    assert page.locator(".source b").count() == 0
    assert "hello" in page.locator(".source").inner_text()


def test_the_gap_hides_the_word_that_is_chosen(visit: Any) -> None:
    page = visit(f"tab=gap&model={SMALL}&text=The+album+was+recorded+in+the+city.")
    page.get_by_role("button", name="city").click()
    changed(page, to="word=6")
    assert page.get_by_role("heading", name="In place of “city”").is_visible()
    assert page.locator("table.bars tbody tr").count() == 10
    assert page.locator("button.piece[aria-pressed=true]").inner_text() == "[MASK]"
    page.get_by_role("button", name="What looks at the masked word").click()
    changed(page, to="towards=to")
    page.get_by_role("tab", name="Next sentence").click()
    changed(page, to="tab=next")
    page.go_back()
    changed(page, to="tab=gap")


def test_attention_opens_by_keyboard_to_a_cell_and_its_arithmetic(visit: Any) -> None:
    page = visit(f"tab=attention&model={SMALL}&text=The+cat+sat.&pair=It+slept.")
    page.locator("#head-1-1").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    changed(page, to="head=2")
    assert page.get_by_role("heading", name="Layer 2, head 2").is_visible()
    assert page.evaluate("document.activeElement.id") == "head-2-2"

    matrix = page.get_by_role("img", name="Attention: layer 2, head 2")
    matrix.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert "looks at" in page.locator(".said").first.inner_text()
    page.keyboard.press("Enter")
    changed(page, to="row=1")
    said = page.locator(".sum").all_inner_texts()
    assert "divided by √32" in said[0]
    assert "The row adds to 1.000." in said[1]

    page.get_by_role("button", name="hidden").click()
    changed(page, to="special=hidden")
    assert "scaled again" in page.locator("#results").inner_text()
    page.get_by_role("button", name="A → B").click()
    changed(page, to="part=ab")
    assert "less than 1" in page.locator("#results").inner_text()
    page.get_by_role("button", name="All", exact=True).click()
    page.get_by_role("button", name="Lines").click()
    changed(page, to="as=lines")
    # Each piece looks somewhere with more than the least weight that is drawn.
    assert page.locator("svg path.line").count() >= 9
    page.get_by_role("button", name="Matrix", exact=True).click()
    page.get_by_role("button", name="With the causal mask").click()
    changed(page, to="causal=yes")
    assert page.get_by_role("img", name="Scores before the softmax").is_visible()
    assert "causal=True" in page.locator("pre").inner_text()


def test_a_pointer_reads_the_values_of_a_matrix(visit: Any) -> None:
    page = visit(f"tab=attention&model={SMALL}&text=The+cat+sat.&layer=2")
    matrix = page.get_by_role("img", name="Attention: layer 2, head 1")
    matrix.scroll_into_view_if_needed()
    box = matrix.bounding_box()
    values = []
    for at in range(6):
        # The cells are in the lower right; the words have the rest.
        page.mouse.move(box["x"] + box["width"] - 5 - at * 34, box["y"] + box["height"] - 5)
        values.append(float(page.locator(".said").first.inner_text().rpartition(" ")[2]))
    assert sum(values) == pytest.approx(1, abs=0.005)


def test_next_sentence_colours_the_segments(visit: Any) -> None:
    page = visit("tab=next&text=The+cat+sat.&pair=It+slept.")
    assert page.locator(".piece.b").count() > 0
    before = page.locator(".number-large").first.inner_text()
    page.get_by_label("Segment B").fill("The parliament of the kingdom was dissolved in 1911.")
    changed(page, to="parliament")
    assert page.locator(".number-large").first.inner_text() != before


def test_a_word_is_deleted_and_the_classifier_runs_again(visit: Any) -> None:
    page = visit("tab=classify&text=the+red+cat")
    assert "Attention need not be an explanation" in page.locator(".lead").inner_text()
    page.get_by_role("button", name="Delete red and run again").click()
    changed(page, to="without=1")
    assert page.get_by_role("heading", name="Without “red”").is_visible()


def test_other_masks_are_drawn_and_the_losses_add_up(visit: Any) -> None:
    page = visit("tab=training")
    page.get_by_role("button", name="Draw other masks").click()
    changed(page, to="seed=2")
    page.get_by_role("button", name="B is from elsewhere").click()
    changed(page, to="follows=no")
    mean, pair, total = (
        float(each)
        for each in page.locator(".sum").last.inner_text().replace(" + ", " = ").split(" = ")
    )
    assert mean + pair == pytest.approx(total, abs=0.0015)


def test_a_language_model_goes_on_token_by_token(visit: Any) -> None:
    page = visit("tab=left&text=the+red")
    first = page.locator("mark").inner_text()
    page.locator("#take").click()
    changed(page, to="step=1")
    assert first in page.locator(".source").inner_text()
    page.locator("#all").click()
    settled(page)
    assert page.locator("#take").is_disabled()
    page.get_by_role("button", name="Drawn").click()
    changed(page, to="draw=yes")
    assert "temperature=1" in page.locator("pre").inner_text()


def test_names_on_the_map_cover_no_other_name(visit: Any) -> None:
    words = "king,queen,prince,king,river,lake,sea,bread,cheese"
    page = visit(f"tab=words&model={SMALL}&words={words}")
    boxes = page.evaluate(
        "[...document.querySelectorAll('svg .name')].map((e) => e.getBoundingClientRect())"
        ".map((e) => [e.left, e.top, e.right, e.bottom])"
    )
    covered = [
        (one, other)
        for at, one in enumerate(boxes)
        for other in boxes[:at]
        if one[0] < other[2]
        and other[0] < one[2]
        and one[1] + 3 < other[3]
        and other[1] + 3 < one[3]
    ]
    assert len(boxes) == 9
    assert covered == []


def test_a_search_shows_what_the_index_finds(
    visit: Any, index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = visit("tab=search")
    page.get_by_label("Query").fill('a "parcel" that has no key')
    changed(page, to="parcel")

    expected = Index.open(index).search('a "parcel" that has no key')
    found = page.locator(".hits > li")
    assert found.locator("p").all_inner_texts() == [hit.text for hit in expected]
    for shown, hit in zip(found.all(), expected, strict=True):
        cosine = shown.locator(".cosine span").inner_text().replace("−", "-").split()[1]
        assert float(cosine) == pytest.approx(hit.score, abs=0.001)
        bar = shown.locator(".cosine i").evaluate("each => parseFloat(each.style.width)")
        assert bar == pytest.approx(100 * abs(hit.score), abs=0.1)
        ranks = [str(rank or "not among the first") for rank in (hit.rank_words, hit.rank_meaning)]
        facts = [*ranks, str(hit.row), hit.columns["answer"]]
        assert shown.locator("dd").all_inner_texts() == facts
    assert "The index has 4 texts." in page.locator("#results").inner_text()
    exec(page.locator("pre").inner_text(), {})
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == [
        str(hit.row) for hit in expected
    ]

    page.get_by_label("Query").fill(" ")
    page.get_by_role("alert").wait_for()
    assert "the query is empty: give a text" in page.get_by_role("alert").inner_text()


def test_what_cannot_be_shown_gets_a_sentence(visit: Any) -> None:
    page = visit("tab=words&word=absent")
    assert "absent" in page.get_by_role("alert").inner_text()


def test_a_view_is_saved_as_a_page_a_picture_and_numbers(visit: Any, tmp_path: Path) -> None:
    # XML has no control characters, and a picture is made of XML.
    page = visit(f"tab=attention&model={SMALL}&text=The+cat%01+sat.&row=1&column=2")
    saved = {}
    for kind in ("HTML", "PNG", "JSON"):
        page.locator("#export").click()
        with page.expect_download() as download:
            page.locator(f"[data-export={kind}]").click()
        assert download.value.suggested_filename == f"tidybert-attention.{kind.lower()}"
        saved[kind] = tmp_path / kind
        download.value.save_as(saved[kind])

    html = saved["HTML"].read_text("utf-8")
    assert "<script" not in html
    assert f"Model {SMALL}" in html
    assert "default-src 'none'" in html
    alone = page.context.browser.new_context(java_script_enabled=False).new_page()
    alone.set_content(html)
    assert alone.get_by_role("heading", name="From the to cat").is_visible()
    assert alone.locator("img[alt^=Attention]").evaluate("each => each.naturalWidth") > 100
    alone.context.close()
    picture = saved["PNG"].read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 50_000
    numbers = json.loads(saved["JSON"].read_text())
    assert numbers["state"]["text"] == "The cat\x01 sat."
    size = len(numbers["data"]["tokens"])
    assert sum(numbers["data"]["weights"][:size]) == pytest.approx(1, abs=1e-5)


def test_looks_are_kept_and_the_tabs_work_by_keyboard(visit: Any) -> None:
    page = visit("tab=tokens", viewport={"width": 1280, "height": 800})
    page.get_by_role("button", name="Large type").click()
    page.get_by_role("button", name="Colours: auto").click()
    page.get_by_role("button", name="Colours: light").click()
    page.get_by_role("tab", name="Tokens").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    changed(page, to="tab=gap")
    page.reload()
    settled(page)
    root = page.locator("html")
    assert root.get_attribute("data-theme") == "dark"
    assert root.get_attribute("data-large") is not None
    assert page.get_by_role("tab", name="Masked word").get_attribute("aria-selected") == "true"


def test_all_tabs_are_in_sight_on_a_narrow_laptop(visit: Callable[..., Any]) -> None:
    page = visit("tab=tokens", viewport={"width": 700, "height": 800})
    boxes = [each.bounding_box() for each in page.get_by_role("tab").all()]
    assert len(boxes) > 10
    assert max(box["x"] + box["width"] for box in boxes) <= 700


@pytest.fixture(scope="module")
def run(served: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RUN whose dev, a file, begins with a text that the page has no room for."""
    directory = tmp_path_factory.mktemp("runs") / "mine"
    shutil.copytree(served["colours"], directory)
    dev = directory.parent / "dev.csv"
    dev.write_text(f"text,label\n{'the cow ' * 300},animal\nthe dog was red,colour\n")
    files = {"dev": {"file": str(dev), "bytes": dev.stat().st_size}}
    (directory / "arguments.json").write_text(json.dumps({"record": {"files": files}}))
    return directory


@pytest.fixture(scope="module")
def run_host(run: Path) -> Iterator[str]:
    models = {"mine": str(run), SMALL: SMALL}
    with server_on_a_thread(models=models, device="cpu") as (address, _):
        yield f"http://{address}/"


@pytest.mark.parametrize("width", [390, 500, 1280])
def test_a_run_opens_on_its_task_with_a_text_of_its_data(
    width: int, browser: Any, run_host: str, tmp_path: Path
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(run_host)
    settled(page)

    assert page.get_by_role("tab", name="Classify").get_attribute("aria-selected") == "true"
    assert page.get_by_label("Text", exact=True).input_value() == "the dog was red"
    # Each button is in sight, and the tabs say where more of them are.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = [each.bounding_box() for each in page.get_by_role("button", name="Delete").all()]
    assert len(boxes) == 4
    card = page.locator(".card", has=page.locator(".attributions")).bounding_box()
    assert max(box["x"] + box["width"] for box in boxes) <= card["x"] + card["width"]
    signs = "[':before', ':after'].map((e) => getComputedStyle(document.querySelector('nav'), e))"
    shown = page.evaluate(f"{signs}.map((e) => e.display !== 'none')")
    assert shown == ([True, True] if width < 640 else [False, False])
    page.locator("#tabs").evaluate("each => { each.scrollLeft = 0; }")
    page.wait_for_function("() => !document.querySelector('nav').hasAttribute('data-before')")
    # Without a model for them, tabs stand at the end.
    names = [each.inner_text() for each in page.get_by_role("tab").all()]
    apart = page.locator("[role=tab].apart").all_inner_texts()
    assert names[-len(apart) :] == apart
    assert {"Answer", "Entities", "Choose", "Search", "Left to right"} <= set(apart)
    assert not {"Tokens", "Masked word", "Classify", "Words"} & set(apart)
    found = axe.Axe().run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    page.close()


def test_right_to_left_texts_run_from_the_right(visit: Any) -> None:
    page = visit(f"tab=tokens&model={SMALL}&text=שלום+עולם&pair=")
    assert page.locator("#field-text").get_attribute("dir") == "rtl"
    assert page.locator("ul.pieces").get_attribute("dir") == "rtl"
    first, last = page.locator("button.piece").first, page.locator("button.piece").last
    assert first.bounding_box()["x"] > last.bounding_box()["x"]


def test_with_keys_the_page_asks_for_one(browser: Any) -> None:
    given = {"models": {SMALL: SMALL}, "device": "cpu", "keys": ("a-long-key",)}
    with server_on_a_thread(**given) as (address, _):
        page = browser.new_page()
        page.goto(f"http://{address}/?tab=next")
        page.get_by_label("API key").fill("a-long-key")
        page.keyboard.press("Enter")
        settled(page)
        assert page.locator(".number-large").count() == 2
        page.close()


def test_another_site_reaches_nothing(browser: Any) -> None:
    with server_on_a_thread(models={SMALL: SMALL}, device="cpu") as (address, _):
        page = browser.new_page()
        rebound = page.goto(f"http://{EVIL}:{address.partition(':')[2]}/page/about")
        assert (rebound.status, "does not answer to the host" in rebound.text()) == (403, True)
        page.set_content(f"<form method=post action='http://{address}/admin/reload'><button>")
        with page.expect_response(f"http://{address}/admin/reload") as posted:
            page.click("button")
        assert posted.value.status == 403
        page.close()


def test_a_tab_without_a_model_says_what_makes_one(browser: Any) -> None:
    with server_on_a_thread(models={SMALL: SMALL}, device="cpu") as (address, _):
        page = browser.new_page()
        page.goto(f"http://{address}/?tab=classify")
        page.wait_for_selector("section.card")
        assert page.locator("pre").inner_text() == "tidybert quickstart"
        page.get_by_role("tab", name="Search").click()
        assert page.locator("pre").inner_text() == "tidybert index minilm FILE --out DIR"
        assert "tidybert page --index DIR" in page.locator("section.card").inner_text()
        page.close()
