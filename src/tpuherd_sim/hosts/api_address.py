"""The address of a world's APIs, inside a host and for its user, and how programs learn it."""

API_PORT = 4443
#: APIs that gcloud must not ask at Google. Of those that the world lacks, it has no path.
GCLOUD_APIS = {
    **dict.fromkeys(
        ("AIPLATFORM", "APIKEYS", "ARTIFACTREGISTRY", "BATCH", "BIGQUERY", "CLOUDASSET",
         "CLOUDBILLING", "CLOUDBUILD", "CLOUDFUNCTIONS", "CLOUDKMS", "CLOUDQUOTAS",
         "CLOUDRESOURCEMANAGER", "CONTAINER", "DATAFLOW", "DNS", "FILE", "IAM", "IAMCREDENTIALS",
         "IAP", "LOGGING", "MONITORING", "NOTEBOOKS", "ORGPOLICY", "OSLOGIN", "PUBSUB",
         "RECOMMENDER", "RUN", "SECRETMANAGER", "SERVICEUSAGE", "SPANNER", "SQL",
         "STORAGEBATCHOPERATIONS", "STORAGEINSIGHTS", "TPU", "TRANSFER"), ""
    ),
    "COMPUTE": "compute/v1/",
    "STORAGE": "storage/v1/",
}  # fmt: skip


def api_environment(address: str, port: int = API_PORT) -> dict[str, str]:
    """Return the variables that point programs to the world; gcsfs would try gRPC first."""
    url = f"http://{address}:{port}"
    return {
        "STORAGE_EMULATOR_HOST": url,
        "TENSORSTORE_GCS_HTTP_URL": url,
        "CLOUD_STORAGE_EMULATOR_ENDPOINT": url,  # of Google's C++ client, and so of pyarrow
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        **{
            f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{name}": f"{url}/{path}"
            for name, path in GCLOUD_APIS.items()
        },
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        "CLOUDSDK_SURVEY_DISABLE_PROMPTS": "1",
    }
