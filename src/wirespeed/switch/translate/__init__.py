"""From a flow, by way of the rules, to what is to be done with its packets."""
