"""Feeds: the arrays that models run on, from files, pictures, sound, text, or seeded."""
