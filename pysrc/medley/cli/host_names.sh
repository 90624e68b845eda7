for file in "${MEDLEY_CLUSTER-}" cluster.toml \
    "${MEDLEY_CONFIG:-${XDG_CONFIG_HOME:-$HOME/.config}/medley}/cluster.toml"; do
    [ -f "$file" ] || continue
    sed -n -e 's/^ *\[hosts\.\([A-Za-z0-9_-]*\)\].*/\1/p' \
        -e 's/^ *\[hosts\."\([A-Za-z0-9._-]*\)"\].*/\1/p' "$file"
    break
done
