"""The network between hosts: which links can talk and how, link set-up, ports and firewalls."""
