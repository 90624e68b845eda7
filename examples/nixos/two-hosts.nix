# A head and a worker as virtual machines without a GPU. They have no network beyond each other, so no engine
# environment can be downloaded: the test shows that the units reach that point and restart, not a served model.
{ medley }:
let
  common = {
    imports = [ medley.nixosModules.default ];
    virtualisation.memorySize = 2048;
    environment.etc."medley-token" = {
      text = "0123456789abcdef0123456789abcdef"; # a real one is a secret
      mode = "0400";
    };
    services.medley = {
      enable = true;
      kind = "cpu";
      tokenFile = "/etc/medley-token";
      firewallInterfaces = [ "eth1" ];
    };
  };
in
{
  name = "medley-two-hosts";

  nodes = {
    head = {
      imports = [ common ];
      services.medley.role = "head";
    };
    worker = {
      imports = [ common ];
      services.medley.role = "worker";
      services.medley.head = "head";
    };
  };

  testScript = ''
    start_all()

    for machine, unit in (head, "medley-head"), (worker, "medley-worker"):
        machine.wait_for_unit("network-online.target")
        machine.wait_until_succeeds(f"systemctl show --property=NRestarts --value {unit} | grep -v '^0$'", 300)
        machine.succeed("medley facts | grep cpu")
        # The toolkit is part of the system: nothing evaluates or builds.
        machine.fail(f"journalctl --unit={unit} | grep -i 'nix build'")
        machine.fail(f"journalctl --unit={unit} | grep -i 'permission denied'")

    # The credential reached the head, and only its user can read the copy.
    head.succeed("test $(stat -c %U:%a /var/lib/medley/.local/state/medley/token) = medley:600")

    # The cluster network is open from port 1024 on.
    head.succeed("iptables -S nixos-fw | grep -- '-i eth1 .*1024:65535'")
  '';
}
