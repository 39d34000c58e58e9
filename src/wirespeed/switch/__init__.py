"""The virtual switch: rules, actions, pipeline."""
