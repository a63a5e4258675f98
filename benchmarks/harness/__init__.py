"""What the measurements share: sides and rounds, processes, data sets, tables, the clock."""
