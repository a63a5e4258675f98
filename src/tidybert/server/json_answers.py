"""JSON by orjson, NumPy's arrays and numbers included."""

from typing import Any

import orjson
from starlette.responses import Response


class JsonAnswer(Response):
    """A response that orjson writes; numbers that are not finite become null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes of ``content``."""
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
