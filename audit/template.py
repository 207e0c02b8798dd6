"""A deployed template with its references filled in: what each resource of the stack was told to be.

What only AWS knows (a role's id, the zones of an account) stays `UNRESOLVED`, and nothing is
compared with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from audit.documents import Documents, Json
from audit.intrinsics import Resolver
from cluster.node_config import NodeConfig
from cluster.serial import decode


@dataclass(frozen=True)
class Resource:
    """One resource of the stack. id: its physical id; blank = CloudFormation lists none."""

    logical_id: str
    type: str
    id: str
    properties: Json = field(default_factory=dict)
    status: str = ""

    def get(self, key: str, default: Any = None) -> Any:
        return self.properties.get(key, default)


@dataclass(frozen=True)
class DeployedStack:
    """The stack as it was deployed last.

    resources: by logical id, those that exist. tags: the stack's, which CloudFormation puts on each
    resource that takes tags. user_data: of each launch template, a pattern that its user data must match
    (decoded). config: what nodes were told; None where no function of
    the stack holds it. What only the deploy knew is blank in it.
    """

    name: str
    status: str
    account: str
    region: str
    outputs: Mapping[str, str]
    resources: Mapping[str, Resource]
    tags: Mapping[str, str] = field(default_factory=dict)
    user_data: Mapping[str, str] = field(default_factory=dict)
    config: NodeConfig | None = None

    def of_type(self, *kinds: str) -> Iterator[Resource]:
        for resource in self.resources.values():
            if resource.type in kinds:
                yield resource

    def ids(self, *kinds: str) -> list[str]:
        """Physical ids of every resource of these types."""
        return [resource.id for resource in self.of_type(*kinds) if resource.id]


def deployed_stack(documents: Documents, name: str) -> DeployedStack | None:
    """The stack from its documents; None when it, its template or its resources were not read.

    name: of the stack; blank = the one whose template the documents hold.
    """
    found = [
        item
        for item in documents.entries("stacks")
        if (item.get("StackName") == name if name else not str(item.get("StackName")).endswith("-evidence"))
    ]
    template = template_of(documents)
    if not found or template is None or not documents.has("stack-resources"):
        return None
    stack = found[0]
    parts = str(stack.get("StackId", "")).split(":")
    listed = {
        str(item.get("LogicalResourceId")): item
        for item in documents.entries("stack-resources")
        if not str(item.get("ResourceStatus", "")).startswith("DELETE")
    }
    exports = {
        str(output["ExportName"]): str(output.get("OutputValue", ""))
        for item in documents.entries("stacks")
        for output in item.get("Outputs") or ()
        if output.get("ExportName")
    }
    region, account = (parts[3], parts[4]) if len(parts) > 4 else ("", "")
    resolve = Resolver(
        template=template,
        physical={key: str(item.get("PhysicalResourceId") or "") for key, item in listed.items()},
        pseudo={
            "AWS::AccountId": account,
            "AWS::Region": region,
            "AWS::Partition": parts[1] if len(parts) > 1 else "",
            "AWS::StackName": str(stack.get("StackName", "")),
            "AWS::StackId": str(stack.get("StackId", "")),
            "AWS::URLSuffix": "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com",
        },
        parameters={
            str(item.get("ParameterKey")): item.get("ResolvedValue") or item.get("ParameterValue")
            for item in stack.get("Parameters") or ()
        },
        exports=exports,
    )
    declared: Json = template.get("Resources") or {}
    resources = {
        logical_id: Resource(
            logical_id=logical_id,
            type=str(resource.get("Type", "")),
            id=str(listed[logical_id].get("PhysicalResourceId") or ""),
            properties=resolve.value(resource.get("Properties") or {}),
            status=str(listed[logical_id].get("ResourceStatus", "")),
        )
        for logical_id, resource in declared.items()
        if isinstance(resource, dict) and logical_id in listed
    }
    return DeployedStack(
        name=str(stack.get("StackName", "")),
        status=str(stack.get("StackStatus", "")),
        account=account,
        region=region,
        outputs={
            str(item.get("OutputKey")): str(item.get("OutputValue", ""))
            for item in stack.get("Outputs") or ()
        },
        resources=resources,
        tags={str(tag.get("Key")): str(tag.get("Value", "")) for tag in stack.get("Tags") or ()},
        user_data={
            logical_id: resolve.pattern(data["UserData"])
            for logical_id, resource in declared.items()
            if "UserData" in (data := (resource.get("Properties") or {}).get("LaunchTemplateData") or {})
        },
        config=_node_config(declared, resolve),
    )


def _node_config(declared: Json, resolve: Resolver) -> NodeConfig | None:
    """The nodes' configuration, which the referee's function holds as well."""
    for resource in declared.values():
        variables = ((resource.get("Properties") or {}).get("Environment") or {}).get("Variables") or {}
        if "CONFIG" in variables:
            try:
                return decode(NodeConfig, json.loads(resolve.told_part(variables["CONFIG"])))
            except ValueError:
                return None
    return None


def template_of(documents: Documents) -> Json | None:
    """The template's object: GetTemplate gives JSON templates parsed, or as text."""
    document = documents.documents.get("stack-template")
    body = document.get("TemplateBody") if isinstance(document, dict) else None
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError:
            return None
    return body if isinstance(body, dict) else None
