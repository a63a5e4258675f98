"""The views by the names that the browser asks for."""

from typing import Final

from tidybert.page import attention_views, pretraining_views, run_views, task_views, token_views
from tidybert.page.page_model import View

VIEWS: Final[dict[str, View]] = {
    "tokens": token_views.tokens,
    "embedding": token_views.embedding,
    "words": token_views.words,
    "gap": token_views.gap,
    "attention": attention_views.attention,
    "attention-layer": attention_views.attention_layer,
    "attention-head": attention_views.attention_head,
    "cell": attention_views.cell,
    "next": pretraining_views.next_sentence,
    "training": pretraining_views.training,
    "left": pretraining_views.left_to_right,
    "run": run_views.run,
    "positions": pretraining_views.positions,
    "answer": task_views.answer,
    "entities": task_views.entities,
    "classify": task_views.classify,
    "choose": task_views.choose,
    "word-apart": token_views.word_apart,
    "word-map": token_views.word_map,
}
