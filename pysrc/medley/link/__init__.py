"""A link is cared for below Ray and NCCL: what it carries is measured and watched, its address is set."""
