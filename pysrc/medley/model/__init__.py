"""Models: where their files are, their shape, whether their code is trusted, and how hosts pass them on."""
