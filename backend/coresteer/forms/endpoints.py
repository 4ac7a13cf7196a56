"""JSON Schemas of policies, rollouts and experiments, from which the front end renders its forms."""

from functools import cache
from typing import Any  # JSON Schema is JSON of any shape

from fastapi import APIRouter
from pydantic import BaseModel

from coresteer.auth.dependencies import Viewer
from coresteer.experiments.spec import Spec
from coresteer.policies.rollout_schemas import RolloutCreate
from coresteer.policies.schemas import PolicyBody
from coresteer.simulation.study import StudySpec
from coresteer.structs import InOrder
from coresteer_core.schema import inline_references, json_schema

router = APIRouter()


class FormSchemas(BaseModel):
    """JSON Schemas (2020-12) without references, with the labels, units and help texts of ``coresteer_core.schema``."""

    policy: dict[str, Any]
    rollout: dict[str, Any]
    experiment: dict[str, Any]
    simulation: dict[str, Any]


@router.get("/schemas")
async def form_schemas(_: Viewer) -> FormSchemas:
    """Return the schemas of a policy's body, a rollout, an experiment and a study, with bounds, defaults and labels."""
    return schemas()


@cache
def schemas() -> FormSchemas:
    """Return the form schemas; they depend on the version of the backend alone."""
    return FormSchemas(
        policy=inline_references(PolicyBody.model_json_schema(schema_generator=InOrder)),
        rollout=inline_references(RolloutCreate.model_json_schema(schema_generator=InOrder)),
        experiment=json_schema(Spec),
        simulation=json_schema(StudySpec),
    )
