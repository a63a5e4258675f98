"""The pages of a report and of a check in a headless Chromium, narrow and wide."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from tests.reporting.conftest import Make, classified
from tests.reporting.test_check_page import contents

from tidybert.reporting.contents import report_contents
from tidybert.reporting.report_page import check_page, report_page

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-core")
__all__ = ["classified"]


def opened(browser: Any, text: str, path: Path, width: int, scheme: str = "light") -> Any:
    path.write_text(text, encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(path.as_uri())
    return page


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (500, "light"), (1280, "dark")])
def test_a_report_keeps_its_charts_and_the_meanings(
    width: int, scheme: str, browser: Any, classified: Make, tmp_path: Path
) -> None:
    page_text = report_page(report_contents(classified(count=60)))
    page = opened(browser, page_text, tmp_path / "report.html", width, scheme)

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    charts = page.locator("figure svg").all()
    assert len(charts) >= 6
    for chart in [*charts, *page.locator("td.picture svg").all()]:
        box = chart.bounding_box()
        assert box["width"] > 100
        assert box["height"] > 10
    row = page.locator("table.stacked tbody tr").first
    name, meaning = row.locator("th").bounding_box(), row.locator("td").last.bounding_box()
    assert meaning["width"] > 150
    under = meaning["y"] >= name["y"] + name["height"] and meaning["x"] == name["x"]
    assert under == (width < 640)
    found = axe.Axe().run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    page.context.close()


def test_one_click_copies_the_correction_of_a_suspect(browser: Any, tmp_path: Path) -> None:
    given = contents()
    one = given["labels"]["suspected"][0]
    other = {**one, "row": 7, "text": 'a "quoted"\ntext', "label": "a", "suggested": "c"}
    given["labels"]["suspected"] = [one, other]
    page = opened(browser, check_page(given), tmp_path / "check.html", 500)

    def copied() -> list[dict[str, str]]:
        text = page.evaluate("navigator.clipboard.readText()")
        return list(csv.DictReader(io.StringIO(text)))

    first, second = page.get_by_role("button", name="Copy correction").all()
    second.click()
    page.get_by_text("The clipboard has 1 correction ").wait_for()
    wanted = {"row": "7", "label": "a", "correction": "c", "text": other["text"]}
    assert copied() == [wanted]
    first.click()
    page.get_by_text("The clipboard has 2 corrections ").wait_for()
    assert [each["row"] for each in copied()] == ["2", "7"]
    page.get_by_role("button", name="Copied").first.click()
    page.get_by_text("The clipboard has 1 correction ").wait_for()
    assert copied() == [wanted]
    assert page.get_by_role("button", name="Copied").get_attribute("aria-pressed") == "true"
    page.context.close()
