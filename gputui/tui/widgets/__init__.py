"""What the views are made of: panes drawn by line, tables, logs, bars, plots."""
