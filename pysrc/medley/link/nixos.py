"""NixOS keeps addresses in its configuration, which is its owner's: we say what to write there."""

from ipaddress import IPv4Interface

from medley.link.change import Change
from medley.link.settings import Setting

_LINK = """\
  networking.interfaces."{name}" = {{
    useDHCP = false;
    mtu = {mtu};
    ipv4.addresses = [ {{ address = "{ip}"; prefixLength = {prefix}; }} ];
  }};
"""


def change(settings: tuple[Setting, ...]) -> Change:
    names = " ".join(f'"interface-name:{each.interface}"' for each in settings)
    text = "{\n" + "".join(_text(each) for each in settings)
    # Without NetworkManager this does nothing.
    text += f"  networking.networkmanager.unmanaged = [ {names} ];\n}}\n"
    return Change(
        "nixos", by_hand=text, notes=("put this into your configuration, then: sudo nixos-rebuild switch",)
    )


def _text(setting: Setting) -> str:
    at = IPv4Interface(setting.address)
    return _LINK.format(name=setting.interface, mtu=setting.mtu, ip=at.ip, prefix=at.network.prefixlen)
