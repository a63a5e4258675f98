"""BertTagger: a tag for each word, behind scikit-learn's interface."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from tidybert.estimators.base import BertEstimator
from tidybert.estimators.checked_inputs import read_weights
from tidybert.estimators.sentence_inputs import read_sentences, read_tags
from tidybert.metrics.entity_scores import TagCounts
from tidybert.tasks.tags.tagged_sentences import TaggedExample
from tidybert.tasks.tags.tagging import TagAnswers, Tagging
from tidybert.tasks.task_options import WindowOptions


class BertTagger(BertEstimator):
    """Tag the words of sentences: named entities, parts of speech.

    X are sentences, each a list of words, and y a list of tags for each.  Where every tag is O or
    has a prefix (B-PER) they mark entities; these may be in IOB1, IOB2, IOBES or BILOU, and are
    predicted in IOB2.  ``score`` reads y as ``fit`` did.

    The parameters are those of BertClassifier but for ``long`` and ``class_weight``.  Sentences
    longer than ``max_seq_length`` are read in windows, ``doc_stride`` tokens apart, and not cut.

    Attributes:
        classes_: the tags, in the order of the model's outputs.
        model_: the BertForTokenClassification, in evaluation mode.
        tokenizer_, task_, max_seq_length_, result_: as BertClassifier has them.
    """

    _task_names = ("tag",)
    task_: Tagging
    classes_: npt.NDArray[Any]

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fine-tune ``model`` on sentences X and their tags y.

        Args:
            X: n sentences, each a list of words.
            y: n lists of tags, one a word.
            sample_weight: (n,) the weight of each sentence's words in the loss; 0 leaves one out.

        Raises DataError (a ValueError) for data that cannot be trained on, UsageError for a
        parameter's value, and what loading ``model`` raises.
        """
        sentences = read_sentences(X)
        tags = read_tags(y, sentences)
        weights = read_weights(sample_weight, len(sentences))
        kept = np.flatnonzero(weights).tolist()
        examples = [TaggedExample(sentences[index], tags[index], index) for index in kept]
        task = Tagging.from_examples(examples, WindowOptions(doc_stride=self.doc_stride))
        self._train(task, examples, weights[kept])
        self._restore({})
        return self

    def predict(self, X: Any) -> list[list[str]]:
        """A list of tags for each sentence."""
        check_is_fitted(self)
        examples = [
            TaggedExample(words, None, index) for index, words in enumerate(read_sentences(X))
        ]
        answers = self._run(examples)
        assert isinstance(answers, TagAnswers)
        return answers.tags

    def score(self, X: Any, y: Any) -> float:
        """The F1 of entities, as conlleval counts it, or the accuracy of other tags."""
        predicted = self.predict(X)
        tags = read_tags(y, predicted, self.task_.of_entities)
        counts = TagCounts.compare(tags, predicted, of_entities=self.task_.of_entities)
        return counts.scores()[self.task_.metric]

    def _restore(self, stored: dict[str, Any]) -> None:
        self.classes_ = np.array(self.task_.label_names)
