# Stands for a training script: it counts steps, and saves when it is told that the end is near.
metadata=http://metadata.google.internal/computeMetadata/v1/instance
curl -s -H 'Metadata-Flavor: Google' "$metadata/preempted?wait_for_change=true" |
    sed 's/^/metadata says preempted: /' &

step=0
trap 'echo "SIGTERM, checkpoint saved at step $step"' TERM
echo training
while :; do
    step=$((step + 1))
    sleep 0.1
done
