"""Schemas of the parts of Compute, Storage, IAM and Service Usage that herd calls."""

from collections.abc import Mapping
from typing import Any

TEXT: Mapping[str, Any] = {"type": "string"}
WORD: Mapping[str, Any] = {"type": "string", "enum": []}
FLAG: Mapping[str, Any] = {"type": "boolean"}
TEXTS: Mapping[str, Any] = {"type": "array", "items": TEXT}
MAP: Mapping[str, Any] = {"type": "object", "additionalProperties": TEXT}


def list_of(schema: str) -> Mapping[str, Any]:
    return {"type": "array", "items": {"$ref": schema}}


def text_fields(names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), TEXT)


SCHEMAS: Mapping[str, Any] = {
    "Project": {
        "properties": {
            **text_fields("kind id creationTimestamp name description selfLink"),
            **text_fields("defaultServiceAccount"),
            "commonInstanceMetadata": {"$ref": "Metadata"},
            "xpnProjectStatus": WORD,
            "defaultNetworkTier": WORD,
            "vmDnsSetting": WORD,
            "cloudArmorTier": WORD,
            "quotas": list_of("ProjectQuota"),
            "enabledFeatures": TEXTS,
        }
    },
    "ProjectQuota": {"properties": {"metric": WORD, **text_fields("owner limit usage")}},
    "Metadata": {
        "properties": {**text_fields("kind fingerprint"), "items": list_of("MetadataEntry")}
    },
    "MetadataEntry": {"properties": text_fields("key value")},
    "ComputeOperation": {
        "properties": {
            **text_fields("kind id name zone region targetLink targetId user insertTime startTime"),
            **text_fields("endTime selfLink creationTimestamp statusMessage operationType"),
            "status": WORD,
            "progress": {"type": "integer"},
            "httpErrorStatusCode": {"type": "integer"},
            "httpErrorMessage": TEXT,
            "error": {"$ref": "ErrorBody"},
        }
    },
    "Bucket": {
        "properties": {
            **text_fields("kind id name selfLink projectNumber location locationType timeCreated"),
            **text_fields("updated metageneration generation etag rpo"),
            "storageClass": WORD,
            "labels": MAP,
            "iamConfiguration": {"$ref": "BucketAccess"},
            "customPlacementConfig": {"$ref": "BucketPlacement"},
            "softDeletePolicy": {"$ref": "SoftDelete"},
            "hierarchicalNamespace": {"$ref": "Switch"},
            "versioning": {"$ref": "Switch"},
        }
    },
    "BucketAccess": {
        "properties": {
            "uniformBucketLevelAccess": {"$ref": "Switch"},
            "bucketPolicyOnly": {"$ref": "Switch"},
            "publicAccessPrevention": TEXT,
        }
    },
    "BucketPlacement": {"properties": {"dataLocations": TEXTS}},
    "SoftDelete": {"properties": text_fields("retentionDurationSeconds effectiveTime")},
    "Switch": {"properties": {"enabled": FLAG, "lockedTime": TEXT}},
    "Policy": {
        "properties": {
            **text_fields("kind resourceId etag"),
            "version": {"type": "integer"},
            "bindings": list_of("Binding"),
        }
    },
    "Binding": {"properties": {"role": TEXT, "members": TEXTS, "condition": {"$ref": "Condition"}}},
    "Condition": {"properties": text_fields("title description expression")},
    "Permissions": {"properties": {"kind": TEXT, "permissions": {"type": "array", "items": TEXT}}},
    "ServiceAccountReply": {
        "properties": {
            **text_fields("name projectId uniqueId email displayName description etag"),
            **text_fields("oauth2ClientId"),
            "disabled": FLAG,
        }
    },
    "ServiceAccountOrder": {
        "properties": {"accountId": TEXT, "serviceAccount": {"$ref": "ServiceAccountReply"}}
    },
    "PermissionsOrder": {"properties": {"permissions": TEXTS}},
    "PolicyOrder": {"properties": {"policy": {"$ref": "Policy"}, "updateMask": TEXT}},
    "CloudProject": {
        "properties": {
            **text_fields("projectNumber projectId name createTime"),
            "lifecycleState": WORD,
            "labels": MAP,
            "parent": {"$ref": "CloudParent"},
        }
    },
    "CloudParent": {"properties": text_fields("type id")},
    "Services": {"properties": {"services": list_of("Service"), "nextPageToken": TEXT}},
    "Service": {
        "properties": {
            **text_fields("name parent"),
            "config": {"$ref": "ServiceConfig"},
            "state": WORD,
        }
    },
    "ServiceConfig": {"properties": text_fields("name title documentation")},
    "Firewalls": {
        "properties": {
            **text_fields("kind id selfLink nextPageToken"),
            "items": list_of("Firewall"),
        }
    },
    "Firewall": {
        "properties": {
            **text_fields("kind id creationTimestamp name description network selfLink"),
            "priority": {"type": "integer"},
            "direction": WORD,
            "disabled": FLAG,
            "logConfig": {"$ref": "FirewallLog"},
            "allowed": list_of("FirewallPorts"),
            "denied": list_of("FirewallPorts"),
            "sourceRanges": TEXTS,
            "destinationRanges": TEXTS,
            "sourceTags": TEXTS,
            "targetTags": TEXTS,
            "sourceServiceAccounts": TEXTS,
            "targetServiceAccounts": TEXTS,
        }
    },
    "FirewallLog": {"properties": {"enable": FLAG, "metadata": WORD}},
    "FirewallPorts": {"properties": {"IPProtocol": TEXT, "ports": TEXTS}},
    "Networks": {
        "properties": {**text_fields("kind id selfLink nextPageToken"), "items": list_of("Network")}
    },
    "Network": {
        "properties": {
            **text_fields("kind id creationTimestamp name description selfLink"),
            "autoCreateSubnetworks": FLAG,
            "subnetworks": TEXTS,
            "networkFirewallPolicyEnforcementOrder": WORD,
        }
    },
    "Regions": {
        "properties": {**text_fields("kind id selfLink nextPageToken"), "items": list_of("Region")}
    },
    "Region": {
        "properties": {
            **text_fields("kind id creationTimestamp name description selfLink"),
            "status": WORD,
            "zones": TEXTS,
            "quotas": list_of("RegionLimit"),
        }
    },
    "RegionLimit": {
        "properties": {"metric": WORD, "limit": {"type": "number"}, "usage": {"type": "number"}}
    },
    "QuotaMetrics": {"properties": {"metrics": list_of("QuotaMetric"), "nextPageToken": TEXT}},
    "QuotaMetric": {
        "properties": {
            **text_fields("name metric displayName unit"),
            "consumerQuotaLimits": list_of("QuotaLimit"),
            "descendantConsumerQuotaLimits": list_of("QuotaLimit"),
        }
    },
    "QuotaLimit": {
        "properties": {
            **text_fields("name metric unit"),
            "isPrecise": FLAG,
            "allowsAdminOverrides": FLAG,
            "quotaBuckets": list_of("QuotaBucket"),
            "supportedLocations": TEXTS,
        }
    },
    "QuotaBucket": {
        "properties": {
            **text_fields("effectiveLimit defaultLimit"),
            "dimensions": {"$ref": "QuotaPlace"},
        }
    },
    "QuotaPlace": {"properties": text_fields("zone region")},
}
PROJECT = "compute/v1/projects/{project}"
#: HTTP method, path, schema of the request, schema of the reply.
METHODS: tuple[tuple[str, str, str | None, str | None], ...] = (
    ("GET", PROJECT, None, "Project"),
    ("POST", f"{PROJECT}/setCommonInstanceMetadata", "Metadata", "ComputeOperation"),
    ("GET", f"{PROJECT}/global/operations/{{operation}}", None, "ComputeOperation"),
    ("GET", "storage/v1/b/{bucket}", None, "Bucket"),
    ("POST", "storage/v1/b", "Bucket", "Bucket"),
    ("GET", "storage/v1/b/{bucket}/iam/testPermissions", None, "Permissions"),
    ("GET", "storage/v1/b/{bucket}/iam", None, "Policy"),
    ("PUT", "storage/v1/b/{bucket}/iam", "Policy", "Policy"),
    ("GET", "v1/projects/{project}/serviceAccounts/{account}", None, "ServiceAccountReply"),
    ("POST", "v1/projects/{project}/serviceAccounts", "ServiceAccountOrder", "ServiceAccountReply"),
    ("GET", f"{PROJECT}/global/networks", None, "Networks"),
    ("GET", f"{PROJECT}/regions", None, "Regions"),
    ("GET", f"{PROJECT}/global/firewalls", None, "Firewalls"),
    ("POST", f"{PROJECT}/global/firewalls", "Firewall", "ComputeOperation"),
    ("GET", f"{PROJECT}/global/firewalls/{{firewall}}", None, "Firewall"),
    ("PATCH", f"{PROJECT}/global/firewalls/{{firewall}}", "Firewall", "ComputeOperation"),
    ("DELETE", f"{PROJECT}/global/firewalls/{{firewall}}", None, "ComputeOperation"),
    ("GET", "v1/projects/{project}", None, "CloudProject"),
    ("POST", "v1/projects/{project}:testIamPermissions", "PermissionsOrder", "Permissions"),
    ("POST", "v1/projects/{project}:getIamPolicy", None, "Policy"),
    ("POST", "v1/projects/{project}:setIamPolicy", "PolicyOrder", "Policy"),
    ("GET", "v1beta1/projects/{project}/services", None, "Services"),
    (
        "GET",
        "v1beta1/projects/{project}/services/{service}/consumerQuotaMetrics",
        None,
        "QuotaMetrics",
    ),
)
