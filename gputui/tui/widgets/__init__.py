"""The widgets of the views: panes drawn by line, tables, logs, bars, plots."""
