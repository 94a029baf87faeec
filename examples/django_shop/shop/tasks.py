"""The shop's tasks. `gnomon_worker` finds them here."""

try:
    from django.tasks import task
except ModuleNotFoundError:  # before Django 6
    from django_tasks import task

from examples.django_shop.shop.models import Order


@task(queue_name="mail", retry=5, timeout="30s")
def remind(order_id: int) -> dict:
    order = Order.objects.get(id=order_id)
    order.reminded = True
    order.save()
    return {"reminded": order.user}


@task(cron="0 3 * * *", timezone="Europe/Berlin")
def sweep() -> int:
    count, _ = Order.objects.filter(reminded=True).delete()
    return count


@task(takes_context=True)
async def count_attempts(context, fail: int) -> int:
    if context.attempt <= fail:
        raise LookupError(f"attempt {context.attempt}")
    return context.attempt
