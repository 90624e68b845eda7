# What hosts/*.toml say, and what follows from it alone. Only built-in functions, so that reading the
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

  # Of these kinds those that are recognised by NVIDIA's own chip: whose GPU is inside it, on no PCI bus.
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
    facts = "What this host is";
    env = "Build, list, check or clean engine environments, and lock your own";
    serve = "Serve a model on this host";
    ask = "Send one chat request to a served model";
    batch = "Answer a file of requests, each once";
    bench = "Measure what is served with its engine's own benchmark";
    run = "Run a Python script with the plan's engine in it";
    ray-head = "Start a Ray cluster on this host";
    ray-worker = "Join the Ray cluster of another host";
    ray-stop = "End Ray on this host";
    join = "Run this host's part of a model that another host heads";
    link = "Show, measure, set up or watch the wire between hosts";
    service = "Have systemd start a head, a worker or a server with the host";
    ports = "What medley's things listen on, and what closes it to all but the cluster";
    models = "List the known models, and how each would do on these hosts";
    plan = "Say where a model would lie, whether it fits, and how fast it should be";
    init = "Write cluster.toml out of the hosts that are there";
    up = "Bring up the cluster that cluster.toml names";
    down = "End it on every host";
    pull = "Bring a model to every host of the cluster";
    stop = "End the served model";
    logs = "What the cluster's units say";
    explain = "What failed, out of logs";
    status = "The cluster this host is in, and what is served here";
    doctor = "Look at every host before anything is started, and what mends what is wrong";
    top = "What the hosts, their GPUs, links and engines do now";
    collective-test = "How fast each host is, and a real all-reduce over the cluster's";
    completion = "A shell's completion script, or the manual page";
    check = "Validate every TOML table";
    version = "Medley's version";
    help = "A verb's help";
  };

  # The config of nixpkgs for a kind of host: without cudaSupport its CUDA packages are broken. A capability decides
  # which of NVIDIA's builds it takes, and pre-SBSA Jetson's cannot be mixed with others: hence one import per kind.
  config =
    host:
    (if host ? toolkit then { cudaSupport = true; } else { })
    // (if host ? toolkit.capability then { cudaCapabilities = [ host.toolkit.capability ]; } else { });

  # nixpkgs' name of a CUDA version's package set: 13.0 is cudaPackages_13_0.
  cudaPackages = host: "cudaPackages_" + builtins.replaceStrings [ "." ] [ "_" ] host.toolkit.cuda;

  # The variables that follow from the table alone.
  variables =
    host: if host ? toolkit.arch_list then { TORCH_CUDA_ARCH_LIST = host.toolkit.arch_list; } else { };
}
