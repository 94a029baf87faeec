"""The shop's pages."""

from django.db import transaction
from django.http import HttpRequest, HttpResponseBadRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from examples.django_shop.shop.models import Order
from examples.django_shop.shop.tasks import remind


@csrf_exempt
def buy(request: HttpRequest, user: str) -> JsonResponse | HttpResponseBadRequest:
    """The order and its reminder are stored together, or not at all."""
    try:
        with transaction.atomic():
            order = Order.objects.create(user=user)
            result = remind.enqueue(order.id)
            if user == "nobody":
                raise ValueError("nobody buys nothing")
    except ValueError as exc:
        return HttpResponseBadRequest(str(exc))
    return JsonResponse({"order": order.id, "result": result.id})


def result(request: HttpRequest, result_id: str) -> JsonResponse:
    """What became of a reminder."""
    shown = remind.get_result(result_id)
    value = shown.return_value if shown.status == "SUCCESSFUL" else None
    return JsonResponse({"status": shown.status, "value": value})
