"""The public vocabulary: every cause by its id, and findings made from it."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Dict, Mapping, Optional, Sequence, Tuple

from diagnosis.catalogue import addressing, filtering, node, path, rendezvous, runtime
from diagnosis.catalogue.cause import Cause, Group, SeenIn

if TYPE_CHECKING:
    from diagnosis.report import Finding

__all__ = ["CATALOGUE", "CAUSES", "LOOK_UPS", "Cause", "Group", "SeenIn", "cause", "fill", "finding"]

CAUSES: Tuple[Cause, ...] = (
    *filtering.CAUSES,
    *addressing.CAUSES,
    *rendezvous.CAUSES,
    *runtime.CAUSES,
    *path.CAUSES,
    *node.CAUSES,
)

CATALOGUE: Dict[str, Cause] = {item.id: item for item in CAUSES}
ORDER: Dict[str, int] = {item.id: place for place, item in enumerate(CAUSES)}

# A field that the evidence could not fill stays in the command in capitals (the command then
# fails by its own check). These commands find such a value; they come before the command.
LOOK_UPS: Dict[str, str] = {
    "group_id": "aws ec2 describe-instances --instance-ids {instance_id} --query "
    "'Reservations[].Instances[].NetworkInterfaces[].Groups'",
    "interface_id": "aws ec2 describe-instances --instance-ids {instance_id} --query "
    "'Reservations[].Instances[].NetworkInterfaces[].NetworkInterfaceId'",
    "acl_id": "aws ec2 describe-network-acls --filters Name=association.subnet-id,Values={subnet_id} --query "
    "'NetworkAcls[].NetworkAclId'",
    "interface": "ip -br address",
}


def cause(cause_id: str) -> Cause:
    """The declaration of a cause.

    Raises:
        KeyError: `cause_id` is not in the catalogue.
    """
    try:
        return CATALOGUE[cause_id]
    except KeyError:
        raise KeyError(f"{cause_id!r} is no cause of the catalogue, run: fullmesh causes") from None


class _Known(Dict[str, str]):
    """Fields for `str.format_map`: an unknown one becomes its own name in capitals."""

    def __missing__(self, key: str) -> str:
        return key.upper()


def fields_of(template: str) -> Tuple[str, ...]:
    """The names of the fields of a command's template, in order."""
    return tuple(name for _, name, _, _ in string.Formatter().parse(template) if name)


def fill(templates: Sequence[str], known: Mapping[str, object]) -> Tuple[str, ...]:
    """Commands from templates, each look-up that is needed before the first command that needs it."""
    values = _Known({key: str(value) for key, value in known.items() if value not in (None, "")})
    commands = []
    for template in templates:
        for name in fields_of(template):
            look_up = LOOK_UPS.get(name)
            if name not in values and look_up is not None:
                commands.append(look_up.format_map(values))
        commands.append(template.format_map(values))
    return tuple(dict.fromkeys(commands))


def finding(
    cause_id: str,
    subject: str,
    *,
    summary: str,
    evidence: Sequence[str],
    fields: Optional[Mapping[str, object]] = None,
    commands: Optional[Sequence[str]] = None,
    remediation: Optional[str] = None,
    at_s: Optional[float] = None,
) -> Finding:
    """A cause at a subject, with the catalogue's remediation and its commands filled in.

    Args:
        fields: values for the commands' templates; None and "" count as unknown.
        commands: ready commands that replace the catalogue's.
        remediation: a sentence that replaces the catalogue's.

    Raises:
        KeyError: `cause_id` is not in the catalogue.
    """
    from diagnosis.report import Finding  # noqa: PLC0415 - start-up time: explaining logs needs no reports

    declared = cause(cause_id)
    return Finding(
        id=cause_id,
        subject=subject,
        summary=summary,
        evidence=tuple(evidence),
        remediation=remediation or declared.remediation,
        commands=tuple(commands) if commands is not None else fill(declared.commands, fields or {}),
        at_s=at_s,
    )
