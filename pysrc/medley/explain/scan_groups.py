"""Name the groups of a failure's texts that the scan fills in."""

from medley.explain.whole_log import WHOLE_LOG_GROUPS

SCAN_GROUPS = frozenset(
    {
        *("component", "last_call", "instead", "above", "step", "step_fix", "advice", "distribution"),
        *("cuda_error", "cuda_fix", "nccl", "switched", "tried", "version_fault"),
        *("engine_version", "enabled", "halved", "mentioned", "about", "driver"),
        *("utilization", "less_share", "near_flag", "extension", "draft", "l4t", "l4t_image"),
        *(
            "weights",
            "exceeds",
            "filled",
            "others",
            "smaller",
            "larger_share",
            "perhaps_others",
            "remedy",
            "ray_address",
        ),
        *(
            "skipped",
            "skipped_fix",
            "one_host",
            "several_hosts",
            "ring",
            "stopped",
            "hang",
            "rank_hang",
            "toolkit_package",
        ),
        *("tuning", "chosen_kernel", "kernel_fix", "any_kernel", "affected", "loader", "gid_index"),
        *("own_target", "other_target", "compiled_file", "p2p_off"),
        *WHOLE_LOG_GROUPS,
        *("border", "computed", "budget_fix"),
    }
)
"""Groups that the scan fills in, for every failure: medley.explain.context has their meaning."""
# These are medley's own words, or plain flags: a shell reads them as they are.
OWN_WORDS = SCAN_GROUPS - {
    "compiled_file",
    "advice",
    "above",
    "remedy",
    "extension",
    "step",
    "last_call",
    "distribution",
    "enabled",
    "library_place",
    "listed_library",
    "library_absent",
    "pulled_image",
    "host_gpu",
    "host_lacks",
}
