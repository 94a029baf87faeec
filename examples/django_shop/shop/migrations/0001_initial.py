"""The table of orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """The first one."""

    initial = True
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(primary_key=True)),
                ("user", models.CharField(max_length=100)),
                ("reminded", models.BooleanField(default=False)),
            ],
        )
    ]
