"""Requests that schemathesis makes from the OpenAPI document: each gets an answer that it names."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("schemathesis")

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tidybert.server.app import make_app
from tidybert.server.engine import Engine

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = 3
MODELS = ("colours", "pairs", "tags", "questions", "base")


def test_made_requests_get_what_the_document_says(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine(*MODELS, allowed_host="testserver")
    schema = schemathesis.openapi.from_asgi("/openapi.json", make_app(engine))
    tried = set()
    for found in schema.get_all_operations():
        operation = found.ok()
        # Those below a name are the same functions as those without it.
        if operation.path.startswith("/models/{name}/") or operation.path == "/admin/reload":
            continue
        tried.add(operation.path)
        try_requests(operation.as_strategy())
        if operation.body:
            try_requests(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    assert {"/v1/embeddings", "/predict", "/", "/v1/models/{name}/predict"} <= tried


def try_requests(cases: Any) -> None:
    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, name=st.sampled_from(MODELS))
    def test(case: Any, name: str) -> None:
        if case.path_parameters:
            case.path_parameters["name"] = name
        case.call_and_validate(checks=CHECKS)

    test()
