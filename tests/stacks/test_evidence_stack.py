"""What outlives a failed deploy."""

from __future__ import annotations

from tests.stacks.synthesis import Synthesis, synthesise


def test_everything_in_the_evidence_stack_is_retained(public: Synthesis) -> None:
    """Bucket and log groups survive the stack's deletion: they explain why it was deleted."""
    kept = {
        resource["Type"]: (resource["DeletionPolicy"], resource["UpdateReplacePolicy"])
        for resource in public.evidence["Resources"].values()
        if resource["Type"] in ("AWS::S3::Bucket", "AWS::Logs::LogGroup")
    }
    assert kept == {
        "AWS::S3::Bucket": ("Retain", "Retain"),
        "AWS::Logs::LogGroup": ("Retain", "Retain"),
    }


def test_the_evidence_empties_itself() -> None:
    """Rows expire and logs too, after as many days as the specification says."""
    evidence = synthesise(cluster__retention_days=14).evidence["Resources"].values()
    (bucket,) = (r["Properties"] for r in evidence if r["Type"] == "AWS::S3::Bucket")
    (rule,) = bucket["LifecycleConfiguration"]["Rules"]
    days = [r["Properties"]["RetentionInDays"] for r in evidence if r["Type"] == "AWS::Logs::LogGroup"]
    assert (rule["Status"], rule["ExpirationInDays"], days) == ("Enabled", 14, [14, 14, 14])


def test_the_bucket_is_closed_and_encrypted(public: Synthesis) -> None:
    """No public access, encrypted at rest, and no request without TLS 1.2."""
    resources = public.evidence["Resources"].values()
    (bucket,) = (r["Properties"] for r in resources if r["Type"] == "AWS::S3::Bucket")
    (policy,) = (r["Properties"] for r in resources if r["Type"] == "AWS::S3::BucketPolicy")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"] == [
        {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    ]
    denied = [
        statement["Condition"]
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Deny"
    ]
    assert denied == [
        {"Bool": {"aws:SecureTransport": "false"}},
        {"NumericLessThan": {"s3:TlsVersion": 1.2}},
    ]


def test_no_retained_name_is_fixed(public: Synthesis) -> None:
    """A retained bucket or log group with a fixed name would block the next deploy of the same cluster."""
    for resource in public.evidence["Resources"].values():
        assert not {"BucketName", "LogGroupName"} & set(resource.get("Properties", {}))
