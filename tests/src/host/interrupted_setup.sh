# A slow program that is interrupted: sends SIGNAL to its process group, or fails without SIGNAL. Queries of apt
# before the first download succeed; busybox is static, so it needs no loader.
case "$*" in
*indextargets*) echo bookworm http://nowhere/; exit ;;
*print-uris* | *--version*) exit ;;
esac
[ -n "$SIGNAL" ] || exit 1
touch "$REACHED"
kill -s "$SIGNAL" 0
sleep 1000
