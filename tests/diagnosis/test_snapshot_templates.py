"""Groups as public tools and templates write them, in our own words: does Gloo's mesh form with them?"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from tests.cluster.world import ANYWHERE, World, cluster, from_cidr, from_group
from tests.diagnosis.verdicts import EPHEMERAL_RANGE, both_ways, check, every

WORLD = "0.0.0.0/0"
SSH = from_cidr(WORLD, 22, 22)
SSH_FROM_WORLD = ("tcp", "22", WORLD)


def open_all(group: str) -> Dict[str, Any]:
    return {**from_group(group, protocol="-1"), "FromPort": -1, "ToPort": -1}


def public(world: World) -> World:
    """Addresses and routes as in a default VPC."""
    for number, interface in enumerate(world.interfaces):
        interface["Association"] = {"PublicIp": f"3.66.35.{number + 1}"}
    world.route("rtb-vpc-1", WORLD, "igw-1")
    world.acl("acl-1", ["subnet-1"], default=True)
    return world


def nodes(groups: Dict[str, Sequence[Any]], *carried: Sequence[str]) -> World:
    """Inbound rules by group, and each node's groups."""
    world = cluster([], count=0)
    world.groups.clear()
    for group, ingress in groups.items():
        world.group(group, ingress, name=group)
    for number, own in enumerate(carried):
        world.node(str(number), f"10.20.1.{10 + number}", own)
    return world


def test_ray_autoscaler() -> None:
    """One group: everything from itself, SSH from the world."""
    world = public(nodes({"sg-ray": [open_all("sg-ray"), SSH]}, *[["sg-ray"]] * 4))
    check(world, True, exposed=[SSH_FROM_WORLD])


def test_ray_with_a_group_for_each_node_type() -> None:
    """Head and worker groups, each of which lets both in."""
    both = {**open_all("sg-head"), "UserIdGroupPairs": [{"GroupId": "sg-head"}, {"GroupId": "sg-worker"}]}
    world = nodes({"sg-head": [both, SSH], "sg-worker": [both, SSH]}, ["sg-head"], *[["sg-worker"]] * 3)
    check(world, True)


def test_skypilot() -> None:
    """Its own group: everything from itself, SSH from the world, and the ports that the task opened."""
    rules = [open_all("sg-sky"), SSH, from_cidr(WORLD, 8080, 8090)]
    world = public(nodes({"sg-sky": rules}, *[["sg-sky"]] * 2))
    check(world, True, exposed=[SSH_FROM_WORLD, ("tcp", "8080-8090", WORLD)])


def test_skypilot_in_the_default_group_after_a_hand_tightened_it() -> None:
    """ "Overly permissive" replaced by SSH and the torch port: only the store is reachable."""
    rules = [SSH, from_group("sg-sky", 29500, 29500)]
    world = public(nodes({"sg-sky": rules}, *[["sg-sky"]] * 2))
    check(
        world,
        False,
        "sg-only-master-port cluster",
        blocked=every("01", EPHEMERAL_RANGE),
        exposed=[SSH_FROM_WORLD],
    )


def test_parallelcluster() -> None:
    """Head and compute groups that let everything of each other in; compute also of itself, for EFA."""
    world = nodes(
        {
            "sg-head": [SSH, open_all("sg-compute")],
            "sg-compute": [open_all("sg-head"), open_all("sg-compute")],
        },
        ["sg-compute"],
        ["sg-compute"],
        ["sg-compute"],
    )
    world.groups[1]["IpPermissionsEgress"].append(open_all("sg-compute"))
    world.node("h", "10.20.1.5", ["sg-head"], member=False)
    check(world, True, exposed=[("-1", "0-65535", "sg-head")])
    world.instances[-1]["Tags"] = world.instances[0]["Tags"]  # the head node takes part in the job
    check(world, True)


def test_efa_tutorial() -> None:
    """One EFA-enabled group: everything in from and out to itself, SSH from one address."""
    world = nodes({"sg-efa": [open_all("sg-efa"), from_cidr("203.0.113.7/32", 22, 22)]}, *[["sg-efa"]] * 2)
    world.groups[0]["IpPermissionsEgress"] = [open_all("sg-efa"), ANYWHERE]
    for interface in world.interfaces:
        interface["InterfaceType"] = "efa"
    assert check(public(world), True, exposed=[("tcp", "22", "203.0.113.7/32")]).advisories == ()


def test_efa_without_the_outbound_self_rule() -> None:
    """TCP forms; the fabric would not, and a hint says so."""
    world = nodes({"sg-efa": [open_all("sg-efa")]}, *[["sg-efa"]] * 2)
    for interface in world.interfaces:
        interface["InterfaceType"] = "efa"
    assert [item.id for item in check(world, True).advisories] == ["efa-self-egress"]


def test_batch_multi_node_parallel() -> None:
    """The compute environment's group with the self rule that its guide asks for; without it nothing."""
    check(nodes({"sg-batch": [open_all("sg-batch")]}, *[["sg-batch"]] * 4), True)
    world = nodes({"sg-batch": []}, *[["sg-batch"]] * 4)
    check(world, False, "sg-no-self-ingress cluster", blocked=every("0123"))


def test_eks_cluster_group() -> None:
    """Nodes with the group that EKS makes: everything from itself, which the control plane carries too."""
    world = nodes({"sg-eks": [open_all("sg-eks")]}, *[["sg-eks"]] * 3)
    world.node("cp", "10.20.1.200", ["sg-eks"], member=False)
    world.instances.pop()
    world.interfaces[-1]["Attachment"] = {"InstanceOwnerId": "amazon-eks"}
    check(world, True, exposed=[("-1", "0-65535", "sg-eks")])


def test_eks_node_group_of_the_terraform_module() -> None:
    """Node to node on 1025-65535, which holds all that Gloo needs; DNS and webhooks besides."""
    rules = [
        from_group("sg-node", 1025, 65535),
        from_group("sg-node", 53, 53),
        from_group("sg-node", 53, 53, "udp"),
        *(from_group("sg-cluster", port, port) for port in (443, 4443, 6443, 8443, 9443, 10250)),
    ]
    world = nodes({"sg-node": rules, "sg-cluster": []}, *[["sg-node"]] * 3)
    check(world, True)


def test_eks_nodes_with_named_ports_only() -> None:
    """A hand-written node group: DNS, kubelet and node ports, nothing that Gloo could use."""
    rules = [
        from_group("sg-node", 53, 53),
        from_group("sg-node", 53, 53, "udp"),
        from_group("sg-node", 10250, 10250),
        from_group("sg-node", 30000, 32767),
    ]
    world = nodes({"sg-node": rules}, *[["sg-node"]] * 3)
    check(world, False, "sg-no-self-ingress cluster", blocked=every("012"))


def test_terraform_self_with_inline_rules() -> None:
    """`self = true` beside CIDR blocks in one ingress block: one permission with both sources."""
    rule = {**from_group("sg-tf"), "IpRanges": [{"CidrIp": "10.20.0.0/16"}]}
    check(nodes({"sg-tf": [rule]}, *[["sg-tf"]] * 3), True)


def test_terraform_ports_0_to_0_mean_port_0() -> None:
    """from_port = 0, to_port = 0 with protocol tcp: meant as all, written as one port."""
    world = nodes({"sg-tf": [from_group("sg-tf", 0, 0)]}, *[["sg-tf"]] * 2)
    check(world, False, "sg-no-self-ingress cluster", blocked=every("01"))


def test_terraform_separate_rules_without_egress() -> None:
    """Terraform removes the default egress rule; only the inbound self rule was written."""
    world = nodes({"sg-tf": [from_group("sg-tf")]}, *[["sg-tf"]] * 3)
    world.groups[0]["IpPermissionsEgress"] = []
    check(world, False, "sg-no-self-egress cluster", blocked=every("012"))


def test_terraform_inline_and_separate_rules_that_fight() -> None:
    """The inline block took the separate self rule away at the last apply; SSH is left."""
    world = public(nodes({"sg-tf": [SSH]}, *[["sg-tf"]] * 2))
    check(world, False, "sg-no-self-ingress cluster", blocked=every("01"), exposed=[SSH_FROM_WORLD])


def test_a_range_of_torch_ports() -> None:
    """A template for torch: 29400-29500 from the VPC, thought to be all that is needed."""
    world = nodes({"sg-ddp": [from_cidr("10.20.0.0/16", 29400, 29500), SSH]}, *[["sg-ddp"]] * 3)
    world.acl("acl-1", ["subnet-1"])
    check(world, False, "sg-only-master-port cluster", blocked=every("012", EPHEMERAL_RANGE))


def test_a_slurm_star() -> None:
    """Controller and compute reach each other on Slurm's ports and for job steps; compute nodes do not."""
    world = nodes(
        {
            "sg-ctl": [from_group("sg-compute")],
            "sg-compute": [from_group("sg-ctl")],
        },
        ["sg-ctl"],
        ["sg-compute"],
        ["sg-compute"],
        ["sg-compute"],
    )
    check(world, False, "sg-no-self-ingress cluster", blocked=every("123"))


def test_a_dask_cluster_with_scheduler_ports() -> None:
    """Scheduler ports from the world, all TCP among members."""
    rules = [from_cidr(WORLD, 8786, 8787), from_group("sg-dask")]
    world = public(nodes({"sg-dask": rules}, *[["sg-dask"]] * 3))
    check(world, True, exposed=[("tcp", "8786-8787", WORLD)])


def test_emr_like_primary_and_core_groups() -> None:
    """All TCP, UDP and ICMP within and between both groups, as EMR's managed groups have them."""
    kinds: List[Dict[str, Any]] = []
    for group in ("sg-primary", "sg-core"):
        kinds += [from_group(group), from_group(group, protocol="udp"), from_group(group, -1, -1, "icmp")]
    world = nodes({"sg-primary": kinds, "sg-core": kinds}, ["sg-primary"], ["sg-core"], ["sg-core"])
    check(world, True)


def test_everything_open_in_the_default_vpc() -> None:
    """The tutorial's "allow all traffic"."""
    world = public(nodes({"sg-all": [from_cidr(WORLD, protocol="-1")]}, *[["sg-all"]] * 2))
    check(world, True, exposed=[("-1", "0-65535", WORLD)])


def test_a_group_for_head_and_one_for_all() -> None:
    """Workers carry the cluster's group only; the head also one for its dashboard."""
    world = public(
        nodes(
            {"sg-all": [open_all("sg-all")], "sg-dash": [from_cidr(WORLD, 8265, 8265)]},
            ["sg-all", "sg-dash"],
            ["sg-all"],
            ["sg-all"],
        )
    )
    found = check(world, True, exposed=[("tcp", "8265", WORLD)])
    assert found.exposed[0].instances == ("i-0",)


def test_one_node_was_launched_by_hand() -> None:
    """Three from the launch template, one from the console with its launch wizard's group."""
    world = nodes(
        {"sg-mesh": [from_group("sg-mesh")], "sg-wizard": [SSH]},
        ["sg-mesh"],
        ["sg-mesh"],
        ["sg-mesh"],
        ["sg-wizard"],
    )
    check(
        public(world),
        False,
        "sg-missing-on-node node:3",
        blocked=both_ways("3", "012"),
        exposed=[SSH_FROM_WORLD],
    )
