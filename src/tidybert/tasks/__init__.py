"""The jobs BERT is known for, one file each: examples, features, head, loss, metrics, answers."""
