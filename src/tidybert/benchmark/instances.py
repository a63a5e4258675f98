"""How many tokens a second pre-training instances are made at, on one thread."""

import time
from typing import Any

from tidybert.data.instances import Position, PretrainingInstances


def bench_instances(
    instances: PretrainingInstances, *, batch_size: int = 256, seconds: float = 2.0
) -> dict[str, Any]:
    """Make batches from the beginning for so many seconds.

    Returns ``tokens_per_second`` and ``instances_per_second`` of masked batches, special tokens
    counted, and ``seek_seconds``, what the first batch of another epoch took.
    """
    begun = time.perf_counter()
    places, _ = instances.take(Position(epoch=1, group=instances.num_groups - 1), batch_size)
    instances.build(places)
    seek_seconds = time.perf_counter() - begun
    position, num_tokens, num_instances = Position(), 0, 0
    begun = time.perf_counter()
    while (passed := time.perf_counter() - begun) < seconds or not num_instances:
        places, position = instances.take(position, batch_size)
        num_tokens += len(instances.build(places).input_ids)
        num_instances += batch_size
    return {
        "tokens_per_second": num_tokens / passed,
        "instances_per_second": num_instances / passed,
        "seek_seconds": seek_seconds,
    }
