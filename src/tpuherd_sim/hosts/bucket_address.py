"""Where a host finds the world's buckets."""

STORAGE_PORT = 4443


def storage_environment(address: str) -> dict[str, str]:
    """What leads the programs of a host to the world's buckets; gcsfs would try gRPC first."""
    url = f"http://{address}:{STORAGE_PORT}"
    return {
        "STORAGE_EMULATOR_HOST": url,
        "TENSORSTORE_GCS_HTTP_URL": url,
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
    }
