"""A Django project whose tasks are performed by Gnomon: see docs/howto/django.md."""
