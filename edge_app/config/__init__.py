"""What pipelines, manifests and other YAML files may say, and how they are read."""
