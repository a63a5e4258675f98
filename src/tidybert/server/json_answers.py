"""JSON by orjson, NumPy's arrays and numbers included."""

from typing import Any

import orjson
from starlette.responses import JSONResponse


class JsonAnswer(JSONResponse):
    """A response that orjson writes; numbers that are not finite become null."""

    def render(self, content: Any) -> bytes:
        """The bytes of ``content``."""
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
