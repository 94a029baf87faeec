"""Django's tasks on Gnomon: a backend, `manage.py gnomon_worker`, and tables made by `migrate`.

Nothing of it is imported unless Django's settings name it.
"""
