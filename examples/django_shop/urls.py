"""Where the shop's pages are."""

from django.urls import path

from examples.django_shop.shop import views

urlpatterns = [
    path("orders/<str:user>", views.buy),
    path("results/<str:result_id>", views.result),
]
