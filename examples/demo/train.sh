# Stands for a training script: it counts steps, and saves when it is told that the end is near.
metadata=http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/instance
(
    trap '' TERM # let it tell its news before it goes
    news=$(curl -s -H 'Metadata-Flavor: Google' "$metadata/preempted?wait_for_change=true")
    echo "the metadata server says: preempted = $news"
) &

step=0
trap 'echo "SIGTERM; saved a checkpoint at step $step"' TERM
echo training
while :; do
    step=$((step + 1))
    sleep 0.1
done
