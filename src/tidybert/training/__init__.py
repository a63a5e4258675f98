"""The training loop: handed a model, features and a loss, it knows no task."""
