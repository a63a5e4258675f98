"""Refuses input that an encoder cannot take, before it runs."""

from tidybert.configuration import BertConfig
from tidybert.modeling.rows import Rows


def check_ids(rows: Rows, config: BertConfig) -> None:
    """Raise ValueError for a sequence that is too long, or an id outside its table.

    It reads ids on the CPU alone: on another device the program would wait for them.
    """
    limit = config.max_position_embeddings
    if rows.max_seqlen > limit:
        raise ValueError(
            f"a sequence has {rows.max_seqlen} tokens, the model takes at most {limit}: "
            "pass max_seq_length to the tokenizer or cut the text"
        )
    if rows.input_ids.device.type != "cpu":
        return
    for name, ids, size in (
        ("input_ids", rows.input_ids, config.vocab_size),
        ("token_type_ids", rows.token_type_ids, config.type_vocab_size),
        ("position_ids", rows.position_ids, limit),
    ):
        lowest, highest = int(ids.min()), int(ids.max())
        if lowest < 0 or highest >= size:
            raise ValueError(
                f"{name} go from {lowest} to {highest}, the model knows 0 to {size - 1}"
                + ": tokenise with the model's own vocabulary" * (name == "input_ids")
            )
