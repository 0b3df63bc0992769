# Runs on kernels with sched_ext.
export PVTICKET_SYSTEM_CALLS=/tmp/calls
B=/in/cache/busybox/busybox
set -e
/init boot --cpus 2 --slots 1 --driver bpf --policy deferred -- lockbench --seconds 0.5
/init compare --guest payload --set drivers=bpf --policy rr --vcpus 3 --runs 1 --seconds 0.2 --host direct
$B sort -u /tmp/calls > /tmp/calls.once
