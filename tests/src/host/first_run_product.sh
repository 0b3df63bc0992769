# A wrapper of the product for the tests of `make run`. ROOT is their folder, REAL the product.
echo "$*" >>"$ROOT/calls"
case $1 in
report) exec "$REAL" "$@" ;;
doctor) printf 'host:   a CPU\nguests: Linux\nnext:   build the guest kernel\n' ;;
compare)
    [ "$2" = --dir ] || exit 0
    mkdir -p "$3"
    cp "$ROOT/${3##*/}.jsonl" "$3/cells.jsonl"
    if [ -e "$ROOT/refused" ] && [ "${3##*/}" = schedules ]; then
        sed -i '$s/"status":"done"/"status":"failed"/' "$3/cells.jsonl"
        echo 'pvticket: cell 7 failed' >&2
        exit 1
    fi ;;
esac
