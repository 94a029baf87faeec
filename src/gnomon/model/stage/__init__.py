"""Stages over entities: the rules, without a store."""
