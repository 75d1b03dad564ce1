"""What opens over the screen: questions, the run form, lists, the palette, the help."""
