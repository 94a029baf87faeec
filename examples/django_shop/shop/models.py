"""What the shop stores."""

from django.db import models


class Order(models.Model):
    """Somebody bought something."""

    user = models.CharField(max_length=100)
    reminded = models.BooleanField(default=False)

    class Meta:
        """Its table."""

        app_label = "shop"
