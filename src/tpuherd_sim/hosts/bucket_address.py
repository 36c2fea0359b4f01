"""The address of the world's buckets inside a host."""

STORAGE_PORT = 4443


def storage_environment(address: str) -> dict[str, str]:
    """Return the variables that point programs to the world's buckets; gcsfs would try
    gRPC first.
    """
    url = f"http://{address}:{STORAGE_PORT}"
    return {
        "STORAGE_EMULATOR_HOST": url,
        "TENSORSTORE_GCS_HTTP_URL": url,
        "CLOUD_STORAGE_EMULATOR_ENDPOINT": url,  # of Google's C++ client, and so of pyarrow
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
    }
