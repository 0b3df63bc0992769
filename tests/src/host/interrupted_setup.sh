# A program that takes long, and is interrupted: sends SIGNAL to all of its process group, or fails if there is none.
# What is asked of apt before anything is downloaded has an answer; busybox is static, as no program is its loader.
case "$*" in
*indextargets*) echo bookworm http://nowhere/; exit ;;
*print-uris* | *--version*) exit ;;
esac
[ -n "$SIGNAL" ] || exit 1
touch "$REACHED"
kill -s "$SIGNAL" 0
sleep 1000
