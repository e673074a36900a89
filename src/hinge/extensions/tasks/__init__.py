"""The protocol extension Tasks: calls whose results are fetched later, in both forms of the protocol."""

from hinge.extensions.tasks.engine import TaskEngine as TaskEngine
from hinge.extensions.tasks.tasks import Tasks as Tasks

__all__ = ("TaskEngine", "Tasks")
