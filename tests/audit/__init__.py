"""Tests of the audit: on folders of documents, on a control plane, and on a running lab."""
