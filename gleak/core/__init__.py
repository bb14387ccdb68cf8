"""Foundation of all packages: errors, specs, the registry, settings and YAML input."""
