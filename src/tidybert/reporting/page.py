"""report.html: the contents of a report as one page that needs nothing else.

It loads nothing, runs without scripts (one that sorts and filters tables is all there is), prints,
and follows the reader's light or dark.  A content security policy allows exactly the style and the
script that stand in it, so that not even a mistake in escaping could run what a text says.
"""

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from tidybert.reporting.markup import Markup, tag
from tidybert.reporting.sections import SECTIONS
from tidybert.reporting.tables import between, number, share

Contents = Mapping[str, Any]


def report_page(contents: Contents) -> str:
    """The page, from what ``report_contents`` gives or report.json holds."""
    style, script = _resource("report.css"), _resource("report.js")
    policy = (
        f"default-src 'none'; style-src 'sha256-{_digest(style)}'; "
        f"script-src 'sha256-{_digest(script)}'; base-uri 'none'; form-action 'none'"
    )
    title = f"{contents['model']} on {contents['data']}"
    made = [(name, heading, draw(contents)) for name, (heading, draw) in SECTIONS.items()]
    made = [each for each in made if each[2]]
    page = tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", name="generator", content=f"tidybert {contents['tidybert_version']}"),
            tag("title", f"{title}: tidybert report"),
            tag("style", Markup(style)),
        ),
        tag(
            "body",
            _head(contents),
            tag(
                "nav",
                tag(
                    "ul",
                    *(tag("li", tag("a", heading, href=f"#{name}")) for name, heading, _ in made),
                ),
                aria_label="Sections",
            ),
            tag(
                "main",
                *(
                    tag(
                        "section",
                        tag("h2", heading, id=name),
                        body,
                        aria_labelledby=name,
                    )
                    for name, heading, body in made
                ),
            ),
            _foot(contents),
            tag("script", Markup(script)),
        ),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n"


def _head(contents: Contents) -> Markup:
    cut = contents["num_truncated"]
    facts = {
        "task": contents["task"],
        "model": contents["model"],
        "data": contents["data"],
        "date": contents["date"],
        "examples": f"{contents['num_examples']:,}",
        "--max-seq-length": f"{contents['max_seq_length']:,} tokens",
        "cut short": f"{cut:,}, which {contents['truncation']}" if cut else "0",
    }
    return tag(
        "header",
        tag("p", "tidybert evaluation report", class_="kind"),
        tag(
            "h1", tag("bdi", _last(contents["model"])), " on ", tag("bdi", _last(contents["data"]))
        ),
        tag(
            "dl",
            *(
                tag("div", tag("dt", name), tag("dd", tag("bdi", value)))
                for name, value in facts.items()
            ),
            class_="facts",
        ),
        _headline(contents),
        tag("ul", *(tag("li", note) for note in contents["notes"]), class_="notes")
        if contents["notes"]
        else None,
    )


def _last(path: str) -> str:
    """The last part of a path."""
    return Path(path).name or path


def _headline(contents: Contents) -> Markup:
    """The few figures to see first."""
    cards = []
    names = list(contents["metrics"])
    first = contents["metric"] if contents["metric"] in contents["metrics"] else names[0]
    for name in [first, *(each for each in names if each != first)][:2]:
        one = contents["metrics"][name]
        interval = "" if one["low"] is None else between(one["low"], one["high"])
        cards.append((number(one["value"]), name, interval))
    if contents["calibration"]:
        error = contents["calibration"]["expected_calibration_error"]
        cards.append((number(error), "calibration error", "how far confidence is off"))
    if contents["suspected_label_errors"]:
        found = contents["suspected_label_errors"]["total"]
        part = share(found / contents["num_examples"])
        cards.append(
            (f"{found:,}", "suspected label errors", f"{part} of the examples, to be read")
        )
    return tag(
        "ul",
        *(
            tag(
                "li",
                tag("span", value, class_="value"),
                tag("span", name, class_="what"),
                tag("span", more, class_="more"),
            )
            for value, name, more in cards
        ),
        class_="cards",
        aria_label="The main figures",
    )


def _foot(contents: Contents) -> Markup:
    drawn = contents["bootstrap"]
    intervals = (
        f"Intervals: {100 * drawn['level']:g} % percentile bootstrap over examples, "
        f"{drawn['num_resamples']:,} resamples, seed {drawn['seed']}. "
        if drawn
        else ""
    )
    return tag(
        "footer",
        tag(
            "p",
            f"{intervals}Written by tidybert {contents['tidybert_version']}; report.json beside "
            "this page has the figures for programs.",
        ),
    )


def _resource(name: str) -> str:
    return (resources.files("tidybert") / "resources" / "report" / name).read_text("utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
