"""EC2's XML is read by this project and by botocore; both must say the same."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any
from xml.sax.saxutils import escape

import botocore.session
import pytest
from botocore.model import ListShape, Shape, StructureShape
from botocore.parsers import EC2QueryParser
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.snapshot import DOCUMENTS
from probe.ec2_query import OPERATIONS, parse_answer

MODEL = botocore.session.get_session().get_service_model("ec2")
TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f"), max_size=8)
MOMENTS = st.datetimes(datetime(2006, 8, 25), datetime(2100, 1, 1), timezones=st.just(timezone.utc))


def output_shape(operation: str) -> StructureShape:
    """What botocore expects of an operation's answer."""
    shape = MODEL.operation_model(operation).output_shape
    assert shape is not None
    return shape


def printed_by_the_command(operation: str, xml: bytes) -> Any:
    """What `aws ec2 describe-* --output json` prints: botocore's answer with times in ISO 8601."""
    shape = output_shape(operation)
    parsed = EC2QueryParser().parse({"body": xml, "headers": {}, "status_code": 200}, shape)
    parsed.pop("ResponseMetadata")
    if not parsed.get("NextToken"):
        parsed.pop("NextToken", None)
    return json.loads(json.dumps(parsed, default=datetime.isoformat))


@st.composite
def xml_of(draw: st.DrawFn, shape: Shape, name: str, depth: int = 0) -> str:
    """An element that holds any of the shape's fields, many or none of each."""
    if isinstance(shape, StructureShape):
        chosen = [m for m in shape.members if draw(st.integers(0, 3)) or depth < 2]
        inner = "".join(
            draw(xml_of(shape.members[m], shape.members[m].serialization.get("name", m), depth + 1))
            for m in chosen
        )
    elif isinstance(shape, ListShape):
        inner = "".join(draw(xml_of(shape.member, "item", depth + 1)) for _ in range(draw(st.integers(0, 2))))
    elif shape.type_name == "integer":
        inner = str(draw(st.integers(-1, 65535)))
    elif shape.type_name == "boolean":
        inner = draw(st.sampled_from(["true", "false"]))
    elif shape.type_name == "timestamp":
        moment = draw(MOMENTS)
        moment -= timedelta(microseconds=moment.microsecond % 1000)
        inner = moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
    else:
        assert shape.type_name == "string", shape
        inner = escape(draw(TEXT))
    return f"<{name}>{inner}</{name}>"


def answer(operation: str, inner: str) -> bytes:
    """A whole answer as EC2 frames it."""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{operation}Response '
        f'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>59dbff89</requestId>{inner}'
        f"</{operation}Response>"
    ).encode()


def whole_xml_of(shape: Shape, name: str, levels: int) -> str:
    """An element with every field of the shape, and two items in every list, down to `levels`."""
    if isinstance(shape, StructureShape):
        inner = "".join(
            whole_xml_of(member, member.serialization.get("name", key), levels - 1)
            for key, member in shape.members.items()
            if levels > 0
        )
    elif isinstance(shape, ListShape):
        inner = whole_xml_of(shape.member, "item", levels - 1) * (2 if levels > 0 else 0)
    else:
        inner = {"integer": "7", "boolean": "true", "timestamp": "2025-11-18T09:14:27.000Z"}.get(
            shape.type_name, "text"
        )
    return f"<{name}>{inner}</{name}>"


def test_documents_are_those_of_the_snapshot() -> None:
    """Every document read here is one that a snapshot knows, under the same name."""
    assert set(OPERATIONS) == set(DOCUMENTS) - {"security-group-rules"}


@pytest.mark.parametrize("operation", sorted(OPERATIONS.values()))
@settings(
    max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None
)
@given(data=st.data())
def test_every_field_of_the_model_reads_as_botocore_reads_it(operation: str, data: st.DataObject) -> None:
    """Any answer that botocore's model allows gives the document that the AWS CLI prints."""
    shape = output_shape(operation)
    inner = "".join(
        data.draw(xml_of(member, member.serialization.get("name", name), 1))
        for name, member in shape.members.items()
    )
    xml = answer(operation, inner)
    assert parse_answer(xml) == printed_by_the_command(operation, xml)


@pytest.mark.parametrize("levels", range(1, 12))
@pytest.mark.parametrize("operation", sorted(OPERATIONS.values()))
def test_the_whole_model_reads_as_botocore_reads_it(operation: str, levels: int) -> None:
    """An answer with all fields down to any depth, and empty elements below it, reads alike."""
    inner = "".join(
        whole_xml_of(member, member.serialization.get("name", name), levels)
        for name, member in output_shape(operation).members.items()
    )
    xml = answer(operation, inner)
    assert parse_answer(xml) == printed_by_the_command(operation, xml)


DOCUMENTED = {
    "DescribeSecurityGroups": """
<securityGroupInfo><item><ownerId>123456789012</ownerId><groupId>sg-9bf6ceff</groupId>
 <groupName>mesh</groupName><groupDescription>members</groupDescription><vpcId>vpc-31896b55</vpcId>
 <ipPermissions>
  <item><ipProtocol>tcp</ipProtocol><fromPort>0</fromPort><toPort>65535</toPort>
   <groups><item><userId>123456789012</userId><groupId>sg-other</groupId><description>first</description></item>
    <item><userId>123456789012</userId><groupId>sg-9bf6ceff</groupId><peeringStatus>active</peeringStatus>
     <vpcId>vpc-2</vpcId><vpcPeeringConnectionId>pcx-1</vpcPeeringConnectionId></item></groups>
   <ipRanges><item><cidrIp>10.0.0.0/16</cidrIp><description>a &amp; b</description></item></ipRanges>
   <ipv6Ranges><item><cidrIpv6>2001:db8::/56</cidrIpv6></item></ipv6Ranges>
   <prefixListIds><item><prefixListId>pl-1</prefixListId></item></prefixListIds></item>
  <item><ipProtocol>icmp</ipProtocol><fromPort>3</fromPort><toPort>4</toPort><groups/><ipRanges/><ipv6Ranges/>
   <prefixListIds/></item>
  <item><ipProtocol>-1</ipProtocol><groups/><ipRanges><item><cidrIp>0.0.0.0/0</cidrIp></item></ipRanges></item>
 </ipPermissions><ipPermissionsEgress/><tagSet><item><key>Name</key><value/></item></tagSet></item>
</securityGroupInfo><nextToken/>""",
    "DescribeNetworkAcls": """
<networkAclSet><item><networkAclId>acl-1</networkAclId><vpcId>vpc-1</vpcId><default>true</default><entrySet>
 <item><ruleNumber>100</ruleNumber><protocol>1</protocol><ruleAction>allow</ruleAction><egress>false</egress>
  <cidrBlock>0.0.0.0/0</cidrBlock><icmpTypeCode><code>4</code><type>3</type></icmpTypeCode></item>
 <item><ruleNumber>110</ruleNumber><protocol>6</protocol><ruleAction>deny</ruleAction><egress>true</egress>
  <ipv6CidrBlock>::/0</ipv6CidrBlock><portRange><from>32768</from><to>60999</to></portRange></item>
 </entrySet><associationSet><item><networkAclAssociationId>aclassoc-1</networkAclAssociationId>
 <networkAclId>acl-1</networkAclId><subnetId>subnet-1</subnetId></item></associationSet><tagSet/></item>
</networkAclSet><nextToken>more==</nextToken>""",
    "DescribeRouteTables": """
<routeTableSet><item><routeTableId>rtb-1</routeTableId><vpcId>vpc-1</vpcId><routeSet>
 <item><destinationCidrBlock>10.0.0.0/16</destinationCidrBlock><gatewayId>local</gatewayId><state>active</state>
  <origin>CreateRouteTable</origin></item>
 <item><destinationCidrBlock>10.1.0.0/16</destinationCidrBlock>
  <vpcPeeringConnectionId>pcx-1</vpcPeeringConnectionId><state>blackhole</state><origin>CreateRoute</origin></item>
 </routeSet><associationSet><item><routeTableAssociationId>rtbassoc-1</routeTableAssociationId>
 <routeTableId>rtb-1</routeTableId><main>true</main><associationState><state>associated</state></associationState>
 </item></associationSet><propagatingVgwSet/><tagSet/></item></routeTableSet>""",
}


@pytest.mark.parametrize("operation", sorted(DOCUMENTED))
def test_documented_shapes_read_as_botocore_reads_them(operation: str) -> None:
    """Several group pairs, IPv6 ranges, prefix lists, ICMP entries and peering routes are all kept."""
    xml = answer(operation, DOCUMENTED[operation])
    assert parse_answer(xml) == printed_by_the_command(operation, xml)


def test_all_group_pairs_are_kept() -> None:
    """The second of two group pairs is read, with the values the XML gives it."""
    document = parse_answer(answer("DescribeSecurityGroups", DOCUMENTED["DescribeSecurityGroups"]))
    assert document["SecurityGroups"][0]["IpPermissions"][0]["UserIdGroupPairs"][1] == {
        "UserId": "123456789012",
        "GroupId": "sg-9bf6ceff",
        "PeeringStatus": "active",
        "VpcId": "vpc-2",
        "VpcPeeringConnectionId": "pcx-1",
    }


def test_an_answer_that_is_cut_off_is_an_error() -> None:
    """Half an answer is never read as a whole one."""
    with pytest.raises(ValueError, match="the answer of ec2 is not XML"):
        parse_answer(answer("DescribeVpcs", "<vpcSet/>")[:-10])
