"""Classified ads and the four stages that look after them: `python -m examples.classifieds`."""
