"""What everything else stands on: errors, specs, the registry, settings, YAML input."""
