"""Examples as features and batches: windows, long texts, splits, checks."""
