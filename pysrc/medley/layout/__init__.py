"""A layout is how a model lies on devices: replicas of pipelines of tensor-parallel stages."""
