"""Google Cloud APIs beside Cloud TPU: Compute, Storage, quotas, tokens, discovery."""
