"""The settings of a small project: PostgreSQL if SHOP_DATABASE says so, else a file."""

import os
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).parent
ADDRESS = urlsplit(os.environ.get("SHOP_DATABASE", ""))

SECRET_KEY = "only for this example"
INSTALLED_APPS = ["gnomon.django", "examples.django_shop.shop"]
ROOT_URLCONF = "examples.django_shop.urls"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

if ADDRESS.scheme == "postgresql":
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": ADDRESS.path[1:],
            "HOST": ADDRESS.hostname,
            "PORT": ADDRESS.port,
            "USER": ADDRESS.username,
        }
    }
else:
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ.get("SHOP_FILE", HERE / "shop.sqlite3"),
        }
    }

TASKS = {
    "default": {
        "BACKEND": "gnomon.django.backend.GnomonBackend",
        "QUEUES": ["default", "mail"],
        # Where it is, unless it is in Django's own database: "OPTIONS": {"url": "postgresql://…"}
        "OPTIONS": {"schema": os.environ.get("SHOP_SCHEMA", "gnomon")},
    }
}
