"""A text, or a pair of texts, as BERT reads it: [CLS] A [SEP] or [CLS] A [SEP] B [SEP].

The layout and the truncation of pairs follow convert_single_example and _truncate_seq_pair of
Google's run_classifier.py.
"""

from dataclasses import dataclass

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Encoding:
    """One model input; all lists have the same length, one entry a token.

    Args:
        tokens: the pieces as the vocabulary spells them.
        input_ids: their ids.
        token_type_ids: 0 for [CLS], the first text and its [SEP]; 1 for the second text and its.
        offset_mapping: (start, end) of each token in its text, in characters; (0, 0) for the
            special tokens around the texts.
        sequence_ids: 0 or 1, the text of a token; None for those special tokens.
        truncated: whether tokens were cut off to fit max_seq_length.
        num_tokens: the tokens before cutting, special tokens included.
    """

    tokens: list[str]
    input_ids: list[int]
    token_type_ids: list[int]
    offset_mapping: list[Span]
    sequence_ids: list[int | None]
    truncated: bool
    num_tokens: int

    def __len__(self) -> int:
        return len(self.input_ids)


def fitting_lengths(lengths: list[int], room: int) -> list[int]:
    """How many tokens of each of one or two texts fit when they share ``room``.

    Cuts the longer of two texts first; at equal lengths, the second.
    """
    kept = list(lengths)
    excess = max(0, sum(kept) - room)
    if len(kept) == 1:
        return [kept[0] - excess]
    longer = 0 if kept[0] > kept[1] else 1
    levelled = min(excess, kept[longer] - kept[1 - longer])
    kept[longer] -= levelled
    excess -= levelled
    return [kept[0] - excess // 2, kept[1] - (excess + 1) // 2]
