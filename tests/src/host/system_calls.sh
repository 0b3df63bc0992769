# Runs in the emulated host and reports the system calls for Linux guests.
export PVTICKET_SYSTEM_CALLS=/tmp/calls
B=/in/cache/busybox/busybox
set -e
cd /tmp
echo replaced > stats
echo hello | /init boot --cpus 2 --stats stats -- cat
/init boot --cpus 2 --pv kvm --stats /dev/null -- true
/init boot --cpus 2 --pv doorbell --vms 2 --policy deferred --record /tmp/rec -- lockbench --seconds 1
/init boot --cpus 3 --policy lhp:20,5ms --fault kick-delay:50us,halt-delay:20us -- lockbench --seconds 1
/init boot --cpus 2 --policy rr --system-map /in/System.map -- lockbench --seconds 0.5
echo exit | /init boot --cpus 2
# It ends by a reset after an NMI to a halted vCPU: the NMI poller executes the steps of the schedule.
DEAF='echo 1 > /sys/kernel/debug/pvticket/deaf_waiter && reboot -f'
/init boot --cpus 4 --pv vmm --policy rr --slots 1 -- sh -c "$DEAF" || test $? = 1
# The same waiter in KVM's HLT for a second, until a check of the watchdog finds it there.
/init boot --cpus 4 --pv doorbell --fault kick-delay:50us -- sh -c "$DEAF" || test $? = 1
/init compare --guest payload --pv-backends vmm,doorbell,kvm --policy deferred --vcpus 3 --runs 1 --seconds 0.2 --host direct
/init compare --guest payload --pv-backends doorbell --vcpus 2 --runs 1 --seconds 0.1 --host direct
/init compare --guest linux --locks ticket --policy host,rr --vcpus 2 --runs 1 --seconds 0.2 --host direct
$B sort -u /tmp/calls > /tmp/calls.once
