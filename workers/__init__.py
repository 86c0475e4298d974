"""Celery's side: wakes only. Losing one or running it twice changes nothing (ADR 1)."""
