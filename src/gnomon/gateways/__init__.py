"""How one gets in from outside. Gateways have no rules of their own."""
