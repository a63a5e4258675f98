"""Which texts of an index count in a search: a filter by the columns beside them."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tidybert.errors import DataError, UsageError, param
from tidybert.search.index_format import IndexContent
from tidybert.search.nearest_vectors import Indices

if TYPE_CHECKING:
    import pyarrow.compute as pc

Where: TypeAlias = "pc.Expression | str | Sequence[str] | None"
"""Comparisons such as "label=billing", which all must hold, or an expression of pyarrow.compute."""
_COMPARISON: Final = re.compile(r"(?s)(.+?)(!=|<=|>=|=|<|>)(.*)")
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
# A name that no column of a table has.
_POSITION: Final = "\0position"


class ColumnTable:
    """The columns of an index's texts with the types that Arrow finds in them."""

    def __init__(self, content: IndexContent) -> None:
        import pyarrow as pa
        import pyarrow.json

        lines = "\n".join(
            line for batch in content.batches for line in batch["columns"].to_pylist()
        ).encode()
        # In one block: in several each would find types by itself.
        options = pyarrow.json.ReadOptions(block_size=max(1, min(len(lines), 2**31 - 1)))
        try:
            table = pyarrow.json.read_json(pa.BufferReader(lines), options)
        except pa.ArrowException as error:
            raise DataError(
                f"the columns beside the texts cannot be read as a table: {error}; give every "
                "column one type in the file, and replace what differs"
            ) from None
        self.names = list(table.column_names)
        positions = pa.array(np.arange(content.state.num_texts))
        named = zip(self.names, table.columns, strict=True)
        self._table = pa.table({**dict(named), _POSITION: positions})

    def positions(self, where: "pc.Expression | str | Sequence[str]") -> Indices:
        """Those of the texts that count, in order; UsageError for a filter that does not fit."""
        import pyarrow as pa

        wanted: Any = where
        try:
            if isinstance(where, str):
                wanted = self._compared(where)
            elif isinstance(where, Sequence):
                wanted = self._compared(where[0])
                for each in where[1:]:
                    wanted &= self._compared(each)
            found: Indices = self._table.filter(wanted)[_POSITION].to_numpy()
        except pa.ArrowException as error:
            raise UsageError(f"{param('where', where)}: {error}; {self._known()}") from None
        return found

    def _compared(self, text: str) -> "pc.Expression":
        import pyarrow as pa
        import pyarrow.compute as pc

        match = _COMPARISON.fullmatch(text)
        if match is None:
            raise UsageError(
                f"{param('where', text)}: expected COLUMN=VALUE, or !=, <, <=, > or >= in between"
            )
        name, sign, value = match.groups()
        if name not in self.names:
            raise UsageError(f"{param('where', text)}: no column {name!r}; {self._known()}")
        kind = self._table.schema.field(name).type
        column = pc.field(name)
        if pa.types.is_string(kind) and sign not in ("=", "!=") and _NUMBER.fullmatch(value):
            # All columns of a CSV are text, and as text 10 is less than 9.
            kind = pa.float64()
            column = pc.if_else(column == "", pa.scalar(None, pa.string()), column).cast(kind)
        given = pa.scalar(value).cast(kind)
        return {
            "=": column == given,
            "!=": column != given,
            "<": column < given,
            "<=": column <= given,
            ">": column > given,
            ">=": column >= given,
        }[sign]

    def _known(self) -> str:
        kinds = (f"{name} ({self._table.schema.field(name).type})" for name in self.names)
        return f"the columns are {', '.join(kinds) or 'none'}"
