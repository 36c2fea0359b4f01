# What a host says of itself.
metadata=http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/instance
worker=$(curl -s -H 'Metadata-Flavor: Google' "$metadata/attributes/agent-worker-number")
address=$(curl -s -H 'Metadata-Flavor: Google' "$metadata/network-interfaces/0/ip")
chips=$(ls -d /dev/accel* /dev/vfio/[0-9]* 2>/dev/null | wc -l)
echo "worker $worker is $(hostname), $address inside, with $chips chips"
