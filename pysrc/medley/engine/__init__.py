"""Run vLLM and SGLang side by side: their flags, variables, output and release."""
