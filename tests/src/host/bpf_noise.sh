# Writes noise to the telemetry page, under each of POLICIES. The test replaces the words in capitals.
# The guest is stopped after the 20th write: a guest with a fixed amount of work takes much longer if the writer and
# its vCPUs share busy CPUs (300 s for two policies instead of 57 s for six).
# The page is in the guest's memory, in the VMM; its map is identified by size. If the VMM exits between open and write
# of `dd`, the write returns 0 without an error, and `dd` repeats it until `timeout` kills it.
BUSYBOX mkfifo /tmp/end
for P in POLICIES; do
BOOT --policy $P -- sh -c 'for i in 1 2; do while :; do :; done & done; read end; echo $0 $end' $P < /tmp/end &
B=$!; exec 3> /tmp/end; A=; until [ "$A" ]; do BUSYBOX sleep 0.1
for R in $(BUSYBOX grep bpf-map /proc/$B/maps | BUSYBOX cut -d' ' -f1); do
[ $((0x${R#*-} - 0x${R%-*})) = 20480 ] && A=${R%-*}; done; done; N=0
while BUSYBOX timeout 10 BUSYBOX dd if=/dev/urandom of=/proc/$B/mem bs=4096 count=5 conv=notrunc seek=$((0x$A / 4096)) 2>/dev/null; do N=$((N+1)); [ $N = 20 ] && echo whole >&3; done
exec 3>&-; wait $B || echo failed $?; [ $N -ge 20 ] || echo $N writes
done
