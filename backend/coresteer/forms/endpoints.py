"""JSON Schemas of policies, rollouts and experiments, from which the front end renders its forms."""

from functools import cache
from typing import Any  # JSON Schema is JSON of any shape

from fastapi import APIRouter
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from coresteer.auth.dependencies import Viewer
from coresteer.experiments.spec import Spec
from coresteer.policies.rollout_schemas import RolloutCreate
from coresteer.policies.schemas import PolicyBody
from coresteer.simulation.study import StudySpec
from coresteer_core.schema import inline_references, json_schema

router = APIRouter(tags=["forms"])


class FormSchemas(BaseModel):
    """JSON Schemas (2020-12) without references, with the labels, units and help texts of ``coresteer_core.schema``."""

    policy: dict[str, Any]
    rollout: dict[str, Any]
    experiment: dict[str, Any]
    simulation: dict[str, Any]


class _InOrder(GenerateJsonSchema):
    """Keeps keys of a JSON Schema in the order of their declaration, which is that of the form."""

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        """Return the value as it is."""
        return value


@router.get("/api/schemas")
async def form_schemas(_: Viewer) -> FormSchemas:
    """Return the schemas of a policy's body, a rollout, an experiment and a study, with bounds, defaults and labels."""
    return schemas()


@cache
def schemas() -> FormSchemas:
    """Return the form schemas; they depend on the version of the backend alone."""
    return FormSchemas(
        policy=inline_references(PolicyBody.model_json_schema(schema_generator=_InOrder)),
        rollout=inline_references(RolloutCreate.model_json_schema(schema_generator=_InOrder)),
        experiment=json_schema(Spec),
        simulation=json_schema(StudySpec),
    )
