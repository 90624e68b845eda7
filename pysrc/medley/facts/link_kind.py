"""The kind of a link is what it leads to: another host by wire, the air, or only a container or a tunnel."""

import re

# What made a link is surer than its name. The kernel's words: ip -details, or DEVTYPE in sysfs.
_MADE = {
    "bond": "bond",
    "team": "bond",
    "vlan": "vlan",
    "bridge": "bridge",
    "openvswitch": "bridge",
    "gadget": "gadget",
    "ipoib": "infiniband",
    "wlan": "wifi",
    "dummy": "virtual",
    "ifb": "virtual",
    "vrf": "virtual",
    "wwan": "virtual",
    "rmnet": "virtual",
} | dict.fromkeys(
    (
        *("wireguard", "tun", "ppp", "vxlan", "geneve", "ipip", "sit", "gre", "gretap", "erspan", "vti"),
        *("vti6", "xfrm", "ip6tnl", "ip6gre", "ip6gretap", "macsec", "gtp", "amt", "bareudp", "l2tp"),
    ),
    "tunnel",
)
# One end is here, and the other in a container, or on a wire: only the name tells.
_ENDS = {"veth", "macvlan", "ipvlan", "macvtap", "ipvtap", "netkit"}

_NAMES = (
    # A bridge of the user is br-lan; docker's own networks are br- and twelve hex digits.
    (r"docker|podman|nerdctl|br-[0-9a-f]{12}$|veth|lxc|lxdbr|incusbr|ve-|vb-|vz-|waydroid", "container"),
    (r"cni|cbr0|flannel|cali|vxlan\.calico|cilium|kube-|nodelocaldns|weave|antrea|ovn-", "container"),
    (r"virbr|vnet\d", "container"),
    (r"tailscale|wg|tun|tap|zt|ipsec|ppp|nebula|nordlynx|proton|utun|gre|sit|ip6tnl|vti|xfrm", "tunnel"),
    (r"usb\d|l4tbr|rndis", "gadget"),
    (r"wl", "wifi"),
    (r"wwan|wwp|rmnet|dummy|ifb", "virtual"),
)
_TUNNEL_TYPES = {"none", "ppp", "sit", "ipip", "gre", "gre6", "tunnel", "tunnel6", "rawip"}
_WIRE = re.compile(r"(eth|en|lan|net|host)[0-9a-z]*$", re.IGNORECASE)


def link_kind(
    name: str, *, link_type: str = "", made_as: str = "", driver: str | None = None, enslaved: bool = False
) -> str:
    """`made_as` is empty for hardware, and `driver` None for what is none."""
    named = next((kind for names, kind in _NAMES if re.match(names, name)), None)
    return (
        _typed(name, link_type)
        or _made(made_as, named, enslaved=enslaved)
        or (driver and link_type in {"", "ether"} and _driven(driver, named))
        or named
        or ("tunnel" if link_type in _TUNNEL_TYPES else None)
        or ("ethernet" if _WIRE.match(name) else "virtual")
    )


def _typed(name: str, link_type: str) -> str | None:
    if link_type == "loopback" or name == "lo":
        return "loopback"
    return "infiniband" if link_type.startswith("infiniband") else None


def _made(made_as: str, named: str | None, *, enslaved: bool) -> str | None:
    if made_as in _ENDS:
        # In a container or a namespace of its own, an end of a pair is the host's wire.
        return "container" if enslaved else named or "ethernet"
    made = _MADE.get(made_as)
    # Docker makes plain bridges, flannel plain tunnels, and a Jetson bridges its gadget.
    plain = (made == "bridge" and named == "gadget") or (
        made in {"bridge", "tunnel"} and named == "container"
    )
    return named if plain else made


def _driven(driver: str, named: str | None) -> str:
    """Hardware is a wire, whatever its name, but for the air and USB's gadgets."""
    if driver == "rndis_host":
        return "gadget"
    return named if named in {"gadget", "wifi"} else "ethernet"
