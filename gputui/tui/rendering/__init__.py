"""From values to styled text: formats, palettes, columns, lines, cells. No widgets, no state."""
