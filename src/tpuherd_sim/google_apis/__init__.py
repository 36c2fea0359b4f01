"""What TPU users meet of Google Cloud beside TPUs: Compute, Storage, quotas, tokens, discovery."""
