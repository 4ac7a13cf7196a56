"""Logs of the backend on stderr: lines for people, or one JSON object each."""

import logging
import sys

import structlog
from structlog.typing import Processor

from coresteer.config import LogFormat

_SHARED: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,  # request, node
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
)


def set_up_logs(form: LogFormat) -> None:
    """Format what the standard library's loggers say from now on, with the request or node that they say it about."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=_SHARED, processors=_processors(form)))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)


def _processors(form: LogFormat) -> list[Processor]:
    without = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if form == "text":  # without a time, which journald adds
        return [structlog.processors.format_exc_info, without, _text]
    return [
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        without,
        structlog.processors.ExceptionRenderer(),
        structlog.processors.EventRenamer("message"),
        structlog.processors.JSONRenderer(ensure_ascii=False),
    ]


def _text(_: object, __: str, event: structlog.typing.EventDict) -> str:
    return "\n".join(filter(None, (f"{event['level'].upper()} {event['event']}", event.get("exception"))))
