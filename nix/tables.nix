# The contents of hosts/*.toml, and values derived from them. Only built-in functions, so that reading the
# tables never fetches nixpkgs. Python (medley.config) is the validator; this file trusts them.
let
  folder = ../hosts;
  kind = file: builtins.match "(.*)\\.toml" file;
  files = builtins.filter (file: kind file != null) (builtins.attrNames (builtins.readDir folder));

  hosts = builtins.listToAttrs (
    map (file: {
      name = builtins.head (kind file);
      value = fromTOML (builtins.readFile (folder + "/${file}"));
    }) files
  );

  without =
    drop: table: removeAttrs table (builtins.filter (name: drop name) (builtins.attrNames table));
in
{
  inherit hosts;

  # The kinds that are recognized by an SoC of NVIDIA, whose GPU is not on a PCI bus.
  jetsons = kinds: without (name: !(kinds.${name}.recognise ? soc)) kinds;

  # Every system that some kind of host runs, each with the kinds that exist there.
  systems =
    let
      names = builtins.concatMap (name: hosts.${name}.systems) (builtins.attrNames hosts);
      on = system: without (name: !builtins.elem system hosts.${name}.systems) hosts;
    in
    builtins.listToAttrs (
      map (system: {
        name = system;
        value = on system;
      }) names
    );

  # The verbs of the command line: each is an app. A test compares them with medley's own.
  verbs = {
    facts = "Show this host's hardware, and what kind of host it is";
    env = "Manage engine environments";
    serve = "Serve a model with an OpenAI-compatible API";
    chat = "Chat with the served model, or send it one message";
    batch = "Answer a file of requests, and resume where it stopped";
    bench = "Benchmark a server, and compare it with its prediction";
    run = "Run a Python script in the engine's environment";
    ray-head = "Start a Ray cluster with this host as its head";
    ray-worker = "Join the Ray cluster of another host as a worker";
    ray-stop = "Stop Ray on this host; on the head, the whole cluster";
    join = "Run this host's part of a model served without Ray";
    link = "Show, test, set up or watch links between hosts";
    service = "Start a head, worker or server with the host (systemd)";
    ports = "Show the ports that medley uses, and firewall rules";
    models = "List known and downloaded models, and their speed here";
    plan = "Show where a model fits and how fast it should be";
    init = "Write cluster.toml from the hosts that ssh reaches";
    up = "Start the cluster on every host of cluster.toml";
    down = "Stop medley on every host of cluster.toml";
    pull = "Copy a model to every host of the cluster";
    stop = "Stop the served model; Ray goes on";
    logs = "Show the logs of Ray and the served model, by time";
    explain = "Name the cause of a failure in a log, and its fix";
    status = "Show hosts, links, Ray and the served model";
    doctor = "Check every host, and print how to fix what is wrong";
    top = "Show the load of hosts, GPUs, links and engines";
    collective-test = "Benchmark every GPU and the network between hosts";
    connect = "Print or write a client's settings for the server";
    key = "Add, list and revoke the API's named keys";
    completion = "Print a shell's completion script, or the manual page";
    check = "Validate every TOML table, and print their folders";
    help = "Show the help of a command";
  };

  # The config of nixpkgs for a kind of host: without cudaSupport its CUDA packages are broken. A capability decides
  # which of NVIDIA's builds it takes, and pre-SBSA Jetson's cannot be mixed with others: hence one import per kind.
  config =
    host:
    (if host ? toolkit then { cudaSupport = true; } else { })
    // (if host ? toolkit.capability then { cudaCapabilities = [ host.toolkit.capability ]; } else { });

  # nixpkgs' name of a CUDA version's package set: 13.0 is cudaPackages_13_0.
  cudaPackages = host: "cudaPackages_" + builtins.replaceStrings [ "." ] [ "_" ] host.toolkit.cuda;

  # The variables that a table determines.
  variables =
    host: if host ? toolkit.arch_list then { TORCH_CUDA_ARCH_LIST = host.toolkit.arch_list; } else { };
}
