"""The benchmarks: the product beside the limit it is measured by, in turn, in one run. See `amux bench --help`."""
