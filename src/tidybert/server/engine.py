"""The engine: inputs of all clients to answers, on the event loop; the routes are on top of it.

A request is tokenised, its features wait in the queue, threads compute them in batches with those
of other requests, and the task decodes its rows.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from tidybert.data.features import Features, text_features
from tidybert.errors import DataError, TextError, TidyBertError, UsageError, in_python, suggestion
from tidybert.inference.embedding import POOLINGS
from tidybert.inference.forward import encoding_features
from tidybert.inference.loading import check_texts, choose_device
from tidybert.server.batch_threads import BatchThreads
from tidybert.server.faults import WRONG_TASK, Refusal
from tidybert.server.meters import Meters
from tidybert.server.served_model import (
    EMBED,
    FILL_MASK,
    NEXT_SENTENCE,
    PREDICT,
    ServedModel,
    open_models,
)
from tidybert.server.settings import ServerSettings, Worker
from tidybert.server.work_queue import Job, Rows, Taken, WorkQueue
from tidybert.tokenization.encoding import Encoding

_LOGGER: Final = logging.getLogger(__name__)

# Work of more characters, or tokens, is done in a thread, so that the event loop stays free.
_FEW_CHARACTERS: Final = 4096
_FEW_TOKENS: Final = 1024
# Inputs that are tokenised or decoded in one go; other requests pass between.
_SLICE: Final = 64
_BATCH_TOKENS: Final = {"cpu": 1024, "cuda": 16_384}

T = TypeVar("T")


@dataclass(frozen=True)
class Embedded:
    """Vectors (n, d) float32, and for each input its tokens before cutting, and whether it was."""

    vectors: npt.NDArray[np.float32]
    num_tokens: list[int]
    truncated: list[bool]


class Engine:
    """The models of a server, and the threads that compute.

    Args:
        settings: the models and limits.
        worker: which of a server's processes this is; None for the only one.

    ``open`` loads the models; ``start`` begins the threads; both before the first request.
    """

    def __init__(self, settings: ServerSettings, worker: Worker | None = None) -> None:
        self.settings = settings
        self.worker = worker
        self.models: Mapping[str, ServedModel] = {}
        self.is_ready = False
        #: Whether clients shall open new connections, because another process takes over.
        self.is_leaving = False
        self._device = choose_device(settings.device)
        on_cpu = self._device.type == "cpu"
        cores = torch.get_num_threads() if on_cpu else 1
        tokens = settings.batch_tokens or _BATCH_TOKENS.get(self._device.type, 1024)
        #: Most tokens that a thread computes at once.
        self.batch_tokens = tokens
        self.queue = WorkQueue(settings.queue_tokens, settings.queue_inputs, tokens, cores)
        self.meters = Meters(self.queue, worker)
        self._threads = BatchThreads(self.queue, cores, cores, self._observe)
        self._aside = ThreadPoolExecutor(1, "tidybert-texts")
        # One thread at a time uses the tokenizers.
        self._texts = threading.Lock()

    # --- its life

    def open(self, models: Mapping[str, ServedModel] | None = None) -> None:
        """Load, verify and warm all models, or take ``models``; raises what ``ServedModel`` raises.

        ``models`` come from ``open_models``.
        """
        self.models = open_models(self.settings) if models is None else models
        self.is_ready = True

    def start(self) -> None:
        """Begin to compute."""
        self._threads.start()

    def close(self) -> None:
        """Compute what waits, then end the threads."""
        self.is_ready = False
        self.queue.close()
        self._threads.join()
        self._aside.shutdown(cancel_futures=True)

    async def reload(self) -> None:
        """Open all models again; requests that have begun end with the old ones.

        Raises what ``open`` raises, and keeps the old models then.
        """
        loop = asyncio.get_running_loop()
        self.models = await loop.run_in_executor(None, open_models, self.settings)

    # --- what it answers

    def model(self, name: str | None) -> ServedModel:
        """A model by its name, the first one for None; Refusal 404 if no model has the name."""
        if not self.models:
            raise Refusal(503, "the models are being loaded; send it again later", retry_after=1)
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            known = ", ".join(self.models)
            more = suggestion(name, self.models)
            raise Refusal(404, f"no model is named {name!r:.80}; there are {known}{more}", "model")
        return self.models[name]

    async def predict(
        self,
        model: ServedModel,
        texts: Sequence[Any],
        text_pairs: Sequence[Any] | None = None,
        *,
        client: str,
        truncate: bool = False,
        deadline: float | None = None,
    ) -> list[dict[str, Any]]:
        """One answer an input, as ``Predictor.predict`` gives them.

        Args:
            model: one of ``models``.
            texts, text_pairs: as ``Predictor.predict`` has them.
            client: who asks; each client has an equal share of the server.
            truncate: cut inputs that are too long; each answer says whether it was.
            deadline: seconds until 504; None for that of the settings.

        Raises Refusal.
        """
        lane, predictor = self._lane(model, PREDICT), model.predictor
        assert predictor is not None
        task = predictor.task

        def examples() -> list[Any]:
            check_texts(texts, text_pairs)
            found = task.from_texts(texts, text_pairs)
            task.check_inputs(found, predictor.metadata.inputs)
            return found

        def features(part: Sequence[Any]) -> list[Features]:
            return task.features(part, predictor.tokenizer, predictor.max_seq_length)

        def answers(
            part: Sequence[Any], made: Sequence[Features], rows: Sequence[Rows]
        ) -> list[dict[str, Any]]:
            found = task.answers(rows, made, part)
            return [
                {**answer, "num_tokens": one.num_tokens, "truncated": one.truncated}
                for answer, one in zip(found.predictions(), found.first_features, strict=True)
            ]

        async with self._admitted(client, len(texts), deadline):
            all_examples = await self._texts_done(_size(texts, text_pairs), examples)
            parts = list(_slices(all_examples))
            made = [await self._texts_done(_size(each), features, each) for each in parts]
            self._refuse_cut(made, _longest(model), truncate)
            outputs = iter(
                await self._computed(lane, client, [one for each in made for one in each])
            )
            return [
                answer
                for part, each in zip(parts, made, strict=True)
                for answer in await self._decoded(
                    each, answers, part, each, list(islice(outputs, len(each)))
                )
            ]

    async def embed(
        self,
        model: ServedModel,
        inputs: Sequence[str] | Sequence[Sequence[int]],
        *,
        client: str,
        truncate: bool = False,
        normalize: bool = False,
        pooling: str = "mean",
        deadline: float | None = None,
    ) -> Embedded:
        """The vectors of texts, or of lists of ids.

        ``normalize`` scales each vector to length 1; ``pooling`` is mean, cls or max.
        Raises Refusal.
        """
        if pooling not in POOLINGS:
            known = ", ".join(POOLINGS)
            raise Refusal(422, f"pooling is {pooling!r:.40}; expected one of {known}", "pooling")
        lane = self._lane(model, f"{EMBED}:{pooling}")
        for number, one in enumerate(inputs):
            if not isinstance(one, str):
                self._check_ids(model, one, f"inputs.{number}")

        async with self._admitted(client, len(inputs), deadline):
            made = [
                await self._texts_done(_size(part), model.embedding_features, part)
                for part in _slices(inputs)
            ]
            features = [one for each in made for one in each]
            self._refuse_cut(made, model.embedding_length, truncate)
            vectors = np.concatenate(await self._computed(lane, client, features))
        if normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return Embedded(
            vectors, [one.num_tokens for one in features], [one.truncated for one in features]
        )

    async def fill_mask(
        self,
        model: ServedModel,
        texts: Sequence[str],
        *,
        client: str,
        top_k: int | None = None,
        among: Sequence[str] | None = None,
        deadline: float | None = None,
    ) -> list[dict[str, Any]]:
        """One answer a text, as ``MaskFiller.fill`` gives them; raises Refusal."""
        lane, filler = self._lane(model, FILL_MASK), model.mask_filler
        assert filler is not None
        with as_refusals("top_k" if among is None else "among"):
            ids, count = filler.words(top_k, among)

        def encoded(part: Sequence[tuple[int, str]]) -> list[Encoding]:
            return [filler.encoded(text, f"inputs.{number}") for number, text in part]

        async with self._admitted(client, len(texts), deadline):
            encodings = [
                one
                for part in _slices(list(enumerate(texts)))
                for one in await self._texts_done(_size([text for _, text in part]), encoded, part)
            ]
            features = encoding_features(encodings)
            outputs = await self._computed(lane, client, features)
            return await self._decoded(
                features,
                lambda: [
                    filler.answer(*each, ids, count)
                    for each in zip(texts, encodings, outputs, strict=True)
                ],
            )

    async def next_sentence(
        self,
        model: ServedModel,
        texts: Sequence[str],
        next_texts: Sequence[str],
        *,
        client: str,
        truncate: bool = False,
        deadline: float | None = None,
    ) -> list[dict[str, Any]]:
        """One answer a pair, as ``NextSentencePredictor.predict`` gives them; raises Refusal."""
        lane, predictor = self._lane(model, NEXT_SENTENCE), model.next_sentences
        assert predictor is not None

        def made() -> list[Features]:
            check_texts(texts, next_texts)
            return text_features(model.tokenizer, texts, next_texts, model.max_positions)

        async with self._admitted(client, len(texts), deadline):
            features = await self._texts_done(_size(texts, next_texts), made)
            self._refuse_cut([features], model.max_positions, truncate)
            outputs = await self._computed(lane, client, features)
        return [predictor.answer(*each) for each in zip(features, outputs, strict=True)]

    def tokenize(self, model: ServedModel, text: str, add_special_tokens: bool = True) -> Encoding:
        """The tokens of a text, with their places; raises Refusal."""
        with as_refusals("inputs"), self._texts:
            return model.tokenizer.encode(text, add_special_tokens=add_special_tokens)

    async def tokenized(
        self, model: ServedModel, texts: Sequence[str], add_special_tokens: bool = True
    ) -> list[Encoding]:
        """``tokenize`` of several texts, in a thread if they are long."""

        def encoded() -> list[Encoding]:
            encode = model.tokenizer.encode
            return [encode(text, add_special_tokens=add_special_tokens) for text in texts]

        with as_refusals("inputs"):
            return await self._texts_done(_size(texts), encoded)

    def decode(
        self, model: ServedModel, ids: Sequence[int], skip_special_tokens: bool = True
    ) -> str:
        """Readable text of ids; raises Refusal."""
        self._check_ids(model, ids, "ids")
        return model.tokenizer.decode(ids, skip_special_tokens)

    # --- the stages

    def _lane(self, model: ServedModel, name: str) -> Any:
        if name not in model.lanes:
            head = name.partition(":")[0]
            can = ", ".join(model.heads)
            raise Refusal(
                422, f"{model.name!r} has no head for {head}; it can {can}", "model", WRONG_TASK
            )
        return model.lanes[name]

    @asynccontextmanager
    async def _admitted(
        self, client: str, num_inputs: int, deadline: float | None
    ) -> AsyncIterator[None]:
        """Refuse what cannot be taken, and turn errors of users into Refusals."""
        if num_inputs == 0:
            raise Refusal(422, "there are no inputs; give one at least", "inputs")
        if num_inputs > self.settings.max_inputs:
            raise Refusal(
                422,
                f"{num_inputs:,} inputs in one request; at most {self.settings.max_inputs:,} are "
                "taken: send several requests",
                "inputs",
            )
        if not self.is_ready:
            raise Refusal(503, "the server is not ready; send it again later", retry_after=1)
        self.queue.admit(client)
        seconds = self.settings.deadline if deadline is None else deadline
        try:
            with as_refusals("inputs"):
                async with asyncio.timeout(seconds):
                    yield
        except TimeoutError:
            raise Refusal(
                504,
                f"no answer within {seconds:g} seconds; send fewer inputs, or send it again later",
                retry_after=self.queue.seconds_left(),
            ) from None

    async def _texts_done(self, size: int, work: Callable[..., T], *given: Any) -> T:
        """Work with a tokenizer: at once if it is short and the tokenizers are free."""
        with self.meters.stage("tokenise"):
            if size <= _FEW_CHARACTERS and self._texts.acquire(blocking=False):
                try:
                    return work(*given)
                finally:
                    self._texts.release()

            def locked() -> T:
                with self._texts:
                    return work(*given)

            return await asyncio.get_running_loop().run_in_executor(self._aside, locked)

    async def _decoded(
        self, features: Sequence[Features], work: Callable[..., T], *given: Any
    ) -> T:
        """Work on outputs: at once if it is short, or in a thread."""
        with self.meters.stage("decode"):
            if sum(len(one.input_ids) for one in features) <= _FEW_TOKENS:
                return work(*given)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._aside, work, *given)

    async def _computed(self, lane: Any, client: str, features: Sequence[Features]) -> list[Rows]:
        """The rows of each of the features, from the threads that compute."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def end() -> None:
            if not future.done():
                future.set_result(None)

        def finish() -> None:
            try:
                loop.call_soon_threadsafe(end)
            except RuntimeError:
                _LOGGER.debug("the event loop ended before an answer")

        job = Job(lane, client, features, finish)
        begun = perf_counter()
        self.queue.put(job)
        try:
            await future
        finally:
            if not future.done() or future.cancelled():
                self.queue.remove(job)
        self.meters.observe("answer", perf_counter() - begun)
        if job.error is not None:
            raise job.error
        return job.outputs

    def _observe(self, taken: Taken, seconds: float) -> None:
        self.meters.batch(taken, seconds)

    def _check_ids(self, model: ServedModel, ids: Sequence[object], where: str) -> None:
        size = model.tokenizer.vocab_size
        for each in ids:
            if isinstance(each, bool) or not isinstance(each, int) or not 0 <= each < size:
                raise Refusal(
                    422, f"{each!r:.40} is not an id; the model knows 0 to {size - 1}", where
                )

    @staticmethod
    def _refuse_cut(made: Sequence[Sequence[Features]], longest: int, truncate: bool) -> None:
        """Raise Refusal for the first input that was cut, if the client did not ask for it.

        ``made`` are the features of each slice.
        """
        if truncate:
            return
        for part, slice_ in enumerate(made):
            for one in slice_:
                if one.truncated:
                    raise Refusal(
                        422,
                        f"{one.num_tokens:,} tokens, and the model reads {longest:,}: shorten the "
                        "text, or give truncate: true to cut it",
                        f"inputs.{part * _SLICE + one.example}",
                        "too_long",
                    )


@contextmanager
def as_refusals(param: str) -> Iterator[None]:
    """Errors that the texts of a request cause, as Refusals."""
    try:
        yield
    except (DataError, TextError, UsageError) as error:
        raise Refusal(422, in_python(error.message, rows="input"), param) from None
    except TidyBertError as error:
        # Weights and devices: the client cannot help it, and the message may name a path.
        _LOGGER.exception("a batch failed")
        raise Refusal(500, "the model failed; the server's log says why") from error


def _longest(model: ServedModel) -> int:
    """Most tokens of what may be cut: of a question alone where a task cuts nothing else."""
    task = model.task
    return int(getattr(task, "max_query_length", None) or model.max_seq_length)


def _slices(given: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(given), _SLICE):
        yield given[start : start + _SLICE]


def _size(texts: Sequence[Any], text_pairs: Sequence[Any] | None = None) -> int:
    """About how many characters there are to tokenise."""
    size = 0
    for one in texts:
        size += len(one) if isinstance(one, str) else _FEW_CHARACTERS // 8
    return size if text_pairs is None else size + _size(text_pairs)
