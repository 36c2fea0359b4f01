# What a host says of itself.
metadata=http://metadata.google.internal/computeMetadata/v1/instance
worker=$(curl -s -H 'Metadata-Flavor: Google' "$metadata/attributes/agent-worker-number")
chips=$(ls -d /dev/accel* /dev/vfio/[0-9]* 2>/dev/null | tr '\n' ' ')
echo "worker $worker: $(hostname), $(hostname -I | cut -d' ' -f1), chips $chips"
