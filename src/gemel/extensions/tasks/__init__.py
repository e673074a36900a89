"""The protocol extension Tasks: calls whose results are fetched later, in both forms of the protocol."""

from gemel.extensions.tasks.backend_engine import BackendEngine as BackendEngine
from gemel.extensions.tasks.engine import TaskEngine as TaskEngine
from gemel.extensions.tasks.engine import TaskRunner as TaskRunner
from gemel.extensions.tasks.limits import TaskLimits as TaskLimits
from gemel.extensions.tasks.tasks import Tasks as Tasks

__all__ = ("BackendEngine", "TaskEngine", "TaskLimits", "TaskRunner", "Tasks")
