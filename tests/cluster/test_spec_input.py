"""What a hand, a script or a slip can give for a setting: refused on one line, with what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.spec import ClusterSpec, SpecError


def problems(**overrides: Any) -> tuple[str, ...]:
    """What is complained of; () where it is taken."""
    try:
        ClusterSpec.from_context(None, overrides)
    except SpecError as error:
        return error.problems
    return ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(
            ("nodes", text)
            for text in ("\u0664", "\uff14", "1_0", "0x10", "1e3", "4\n5", "$(id)", "", "nan", "9" * 5000)
        ),
        *(("alarm_round_trip_ms", text) for text in ("\u0664", "1_0", "nan", "inf", "1e999", "-1", True)),
        *(
            ("name", text)
            for text in ("a'b", 'a"b', "a\nb", "a$(id)", "`id`", "${x}", "ä", "名前", "a;b", "../x")
        ),
        *(("torch_version", text) for text in ("2.\u0663", "2.13.0; id", "2.13.0\n3", "==2")),
        *(
            ("torch_index_url", text)
            for text in (
                "https://$(id)/",
                "https://a'b/",
                'https://a"b/',
                "https://u:p@h/",
                "https://ä/",
                "x",
            )
        ),
        *(
            ("pinned_ports", text)
            for text in ("50000-", "50999-50000", "50000\u201350999", "1_0", "\u0665-\u0669")
        ),
        *(("availability_zone", text) for text in ("us-east-1", "us-east-1a;id", "us-east-1a,,", "use1-az1")),
        *(
            ("vpc_cidr", text)
            for text in ("10.0.0.0/255.255.0.0", "10.0.0.0/0.0.255.255", "10.0.0.0", "::/16")
        ),
        *(("vpc_cidr", f"{block}/16") for block in ("127.0.0.0", "169.254.0.0", "224.0.0.0", "0.0.0.0")),
        ("wheelhouse_path", "wheels\nrm"),
        ("wheelhouse_path", "wheels\0"),
    ],
)
def test_what_is_no_value_is_refused_on_one_printable_line(key: str, value: Any) -> None:
    """No other script's digits, no quotes, nothing a shell would run, and no password in a template."""
    told = problems(**{key: value})
    assert [line.partition(":")[0] for line in told] == [f"cluster.{key}"]
    assert all(line.isprintable() and len(line) < 400 for line in told)


def test_a_cluster_cannot_take_the_name_of_anothers_evidence() -> None:
    """Its stack would be the one that holds the other cluster's rows."""
    (line,) = problems(name="fullmesh-evidence")
    assert "'fullmesh-evidence' is not" in line
    assert problems(name="fullmesh-evidence-2") == ()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"vpc_cidr": "10.0.0.0/28", "nodes": 2}, "cannot be split into 2 subnets of the /28"),
        (
            {"vpc_cidr": "10.0.0.0/27", "nodes": 2, "subnets": 2, "placement": "none"},
            "cannot be split into 4 subnets of the /28",
        ),
        ({"vpc_cidr": "10.0.0.0/27", "nodes": 12}, "leaves 11 addresses a subnet for 12 nodes"),
        (
            {
                "vpc_cidr": "10.0.0.0/27",
                "nodes": 7,
                "network": "isolated",
                "torch_source": "wheelhouse",
                "wheelhouse_path": "wheels",
            },
            "leaves 6 addresses a subnet for 7 nodes",
        ),
    ],
)
def test_a_range_holds_subnets_that_ec2_makes_and_the_endpoints(settings: dict[str, Any], words: str) -> None:
    """No subnet is smaller than a /28, and an isolated one holds five endpoints beside the members."""
    (line,) = problems(**settings)
    assert line.startswith("cluster.vpc_cidr: ")
    assert words in line
    assert problems(**{**settings, "vpc_cidr": "10.0.0.0/24"}) == ()


@pytest.mark.parametrize(
    "key", ["nodes", "Cluster.nodes", "clusters.nodes", "cluster:nodes", "cluster_nodes"]
)
def test_a_key_that_only_looks_like_a_setting_is_not_passed_over(key: str) -> None:
    """`cdk deploy -c nodes=8` would deploy four nodes without a word."""
    with pytest.raises(SpecError) as caught:
        ClusterSpec.from_cdk_context({key: "8", "@aws-cdk/x:y": True, "aws:cdk:z": []})
    assert caught.value.problems == (f"'{key}': is not a setting; did you mean -c cluster.nodes='8'?",)


def test_the_whole_context_is_read() -> None:
    """The object, single values over it, and the CDK's own keys beside them."""
    spec = ClusterSpec.from_cdk_context(
        {"cluster": {"nodes": 4, "name": "one"}, "cluster.nodes": "6", "availability-zones:account=1": ["a"]}
    )
    assert (spec.nodes, spec.name) == (6, "one")
