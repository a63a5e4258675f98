"""Which instances a step takes: on short sequences first, on long ones in the end."""

from dataclasses import replace

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.pretraining.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.instances import Position, PretrainingInstances
from tidybert.pretraining.pretraining_arguments import PretrainingArguments, tokens_at
from tidybert.pretraining.stream import InstanceStream, StepBatches
from tidybert.training.distributed import Processes


class Phases:
    """Steps on sequences of one length, and the last share of them on longer ones.

    A position is [phase, epoch, group, offset].  ``lengths`` are each phase's, and ``switch`` is
    the first step of the second.
    """

    def __init__(
        self,
        corpus: TokenCorpus,
        options: InstanceOptions,
        masking: MaskingOptions,
        arguments: PretrainingArguments,
        micro_batch_tokens: int,
        processes: Processes,
    ) -> None:
        self.arguments = arguments
        num_steps = arguments.setting("max_steps")
        self.switch = num_steps - int(num_steps * arguments.setting("long_share"))
        self.lengths = [options.max_seq_length]
        if self.switch < num_steps:
            self.lengths.append(arguments.long_seq_length)
        self.streams = [
            InstanceStream(
                PretrainingInstances(
                    corpus, replace(options, max_seq_length=length), masking, arguments.seed
                ),
                arguments.setting("tokens_per_step"),
                micro_batch_tokens,
                processes.rank,
                processes.size,
                arguments.compile,
            )
            for length in self.lengths
        ]

    def take(self, step: int, position: list[int]) -> StepBatches:
        """The batches of a step."""
        phase = int(step >= self.switch)
        place = Position(*position[1:])
        if phase != position[0]:
            # Longer sequences begin with a new order of the documents.
            place = Position(epoch=place.epoch + 1)
        taken = self.streams[phase].take(place, tokens_at(step, self.arguments))
        after = taken.position
        return replace(taken, position=[phase, after.epoch, after.group, after.offset])
