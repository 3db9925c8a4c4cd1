"""Stormlog: memory telemetry that survives the crash.

Importing this package must stay cheap (a watched program pays for it): nothing is imported here, every name
is loaded when it is first asked for.
"""

__version__ = "0.5.0"
__author__ = "Stormlog Team"

# What type checkers call it; importing it from `typing` would cost more than the rest of this file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import derived_fields as derived_fields
    from . import exit_codes as exit_codes
    from . import recording as recording
    from . import session as session
    from . import telemetry as telemetry
    from . import telemetry_model as telemetry_model
    from . import telemetry_rollups as telemetry_rollups
    from . import telemetry_sink as telemetry_sink
    from .telemetry import (
        TelemetryEventV2,
        TelemetryEventV3,
        TelemetryEventV4,
        load_telemetry_events,
        load_telemetry_sessions,
        resolve_distributed_identity,
        telemetry_event_from_record,
        telemetry_event_to_dict,
        validate_telemetry_record,
    )

_HOME_OF = {
    "TelemetryEventV2": "telemetry",
    "TelemetryEventV3": "telemetry",
    "TelemetryEventV4": "telemetry",
    "load_telemetry_events": "telemetry",
    "load_telemetry_sessions": "telemetry",
    "resolve_distributed_identity": "telemetry",
    "telemetry_event_from_record": "telemetry",
    "telemetry_event_to_dict": "telemetry",
    "validate_telemetry_record": "telemetry",
}
_MODULES = frozenset(
    {
        "derived_fields",
        "exit_codes",
        "recording",
        "session",
        "telemetry",
        "telemetry_model",
        "telemetry_rollups",
        "telemetry_sink",
    }
)

__all__ = [
    "TelemetryEventV2",
    "TelemetryEventV3",
    "TelemetryEventV4",
    "load_telemetry_events",
    "load_telemetry_sessions",
    "resolve_distributed_identity",
    "telemetry_event_from_record",
    "telemetry_event_to_dict",
    "validate_telemetry_record",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF and name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    value: object = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
