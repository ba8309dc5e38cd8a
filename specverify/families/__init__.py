"""Model families that ship with the package, and the workloads they are measured on."""
