"""Text and labels into features and batches."""
