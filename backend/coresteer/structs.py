"""Lets the API's answers speak coresteer_core's structs as they are, so that nothing is defined twice."""

from typing import Any

import msgspec
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


class AsStruct:
    """Annotation for a msgspec Struct in an answer's model: ``topology: Annotated[Topology, AsStruct()]``."""

    def __get_pydantic_core_schema__(self, source: type[msgspec.Struct], _: GetCoreSchemaHandler) -> CoreSchema:
        """Taken as it is, serialized by msgspec.to_builtins."""
        return core_schema.is_instance_schema(
            source,
            serialization=core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins),
            metadata={"struct": source},
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, _: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The struct's own JSON schema, with references resolved in place; no struct of ours refers to itself."""
        document = msgspec.json.schema(schema["metadata"]["struct"])
        definitions = document.get("$defs", {})

        def inline(node: Any) -> Any:  # noqa: ANN401 - arbitrary JSON in, arbitrary JSON out
            if isinstance(node, dict):
                if "$ref" in node:
                    return inline(definitions[node["$ref"].rsplit("/", 1)[1]])
                inlined = {key: inline(value) for key, value in node.items() if key != "$defs"}
                if inlined.get("type") == "object" and "properties" in inlined:
                    # answers always carry every field, also those that have a default in Python
                    inlined["required"] = list(inlined["properties"])
                return inlined
            return [inline(item) for item in node] if isinstance(node, list) else node

        resolved: JsonSchemaValue = inline(document)
        return resolved
