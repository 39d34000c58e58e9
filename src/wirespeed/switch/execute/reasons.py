"""Why the switch drops packets."""

from wirespeed.core.stage import FIRST_REASON

# The first eight are numbered by what a translation fails with, in its own order.
DROPS = {
    "no_action": "The rule says to do nothing with it",
    "no_rule": "No rule of the table matches, and there is no rule for that",
    "too_deep": "Look-ups one inside another, deeper than they may be",
    "too_many": "More look-ups for one packet than there may be",
    "too_long": "More actions for one packet than there may be",
    "too_many_labels": "A label pushed onto three",
    "stack_too_deep": "Too many fields pushed",
    "bad_stack": "A field popped that was not pushed",
    "no_packet": "The pool had no packet for a copy",
    "no_transmit": "The port only receives",
    "meter": "A meter let no more pass",
    "controller_only": "It was told to the controller, and sent to nobody else",
    "controller_full": "The controller had not yet taken what it was told before",
    "malformed": "It has no whole Ethernet header, or a tag without an end",
    "vlan": "The port does not carry its VLAN",
    "mirror_port": "The port is for what a mirror sends, and nothing comes in by it",
    "reserved": "Its destination is an address that bridges do not forward",
    "own_port": "Its destination is behind the port that it came in by",
    "no_destination": "No other port carries its VLAN",
    "port_down": "The port behind which its destination is known is down, or nothing is to be sent there",
}
NUMBERS = {name: FIRST_REASON + i for i, name in enumerate(DROPS)}
