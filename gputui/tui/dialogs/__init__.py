"""The dialogs: questions, the run form, lists, the palette, the help."""
