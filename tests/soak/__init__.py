"""A cluster that lives for hours while everything that can go wrong does, at random."""
