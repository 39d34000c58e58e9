"""From the tree of a filter expression to conditions over a packet, primitive by primitive from left to right."""

from wirespeed.net.filter import host, port, protocol, telecom
from wirespeed.net.filter import syntax as tree
from wirespeed.net.filter.arithmetic import Arithmetic
from wirespeed.net.filter.block import Condition, both, either, inverse
from wirespeed.net.filter.error import FilterError
from wirespeed.net.filter.layers import Layers
from wirespeed.net.filter.lexer import IPV4, IPV6, MAC, MAC8, NUMBER
from wirespeed.net.filter.literal import decnet, ipv4, ipv6, mac
from wirespeed.net.filter.names import Names
from wirespeed.net.filter.word import word_condition

WORD_BITS = 32


class Generator:
    """One compilation: the layers as they are so far, and what the primitives need to know besides."""

    def __init__(self, expression: str, layers: Layers, names: Names, netmask: int | None) -> None:
        self._expression = expression
        self._layers = layers
        self._names = names
        self._netmask = netmask

    def condition(self, node: tree.Condition) -> Condition:
        """The condition of a node; a fault is raised with the node's place."""
        match node:
            case tree.Chain():
                result = self.condition(node.first)
                for word, item in node.rest:
                    result = (both if word == "and" else either)(result, self.condition(item))
                return result
            case tree.Not():
                return inverse(self.condition(node.operand))
        try:
            return self._primitive(node)
        except FilterError as error:
            raise error.at(self._expression, node.start, node.end) from None

    def _primitive(self, node: tree.Condition) -> Condition:
        match node:
            case tree.Relation():
                return Arithmetic(self._layers).relation(node)
            case tree.Abbreviation():
                return protocol.abbreviation(self._layers, node.protocol)
            case tree.Word() if node.word in telecom.WORDS:
                return telecom.named_type(self._layers, node.word)
            case tree.Word():
                return word_condition(self._layers, node, self._netmask)
            case tree.Comparison():
                return telecom.field(self._layers, node)
            case tree.Identifier():
                return self._identifier(node)
        raise AssertionError(node)

    def _identifier(self, node: tree.Identifier) -> Condition:
        """An identifier, by what it is."""
        kind, layers, q = node.token.kind, self._layers, node.qualifiers
        if q.protocol == "decnet" and kind in (NUMBER, IPV4):
            if q.kind not in (None, "host") or node.prefix is not None or node.mask:
                raise FilterError("'decnet' goes with 'host' and an address AREA.NODE only")
            return host.decnet_host(layers, decnet(node.token.text), q.direction)
        if kind == MAC or kind == MAC8:
            if q.kind not in (None, "host") or q.protocol != "link":
                raise FilterError("a hardware address goes with 'ether host' or 'link host' only")
            if kind == MAC8:
                return host.mac8_host(layers, int(node.token.text[1:], 16), q.direction, "link host")
            return host.mac_host(layers, mac(node.token.text), q.direction, "link host")
        if kind == IPV6:
            return self._ipv6(node)
        if kind == IPV4:
            return self._ipv4(node)
        return self._number(node) if kind == NUMBER else self._name(node)

    def _ipv4(self, node: tree.Identifier) -> Condition:
        q = node.qualifiers
        if q.kind not in (None, "host", "net"):
            raise FilterError(f"an IPv4 address goes with 'host' or 'net', not with '{q.kind}'")
        if q.kind != "net" and (node.prefix is not None or node.mask):
            raise FilterError("an IPv4 address with a mask goes with 'net' only")
        if q.protocol == "link":
            raise FilterError("an IPv4 address is no link layer's address")
        value, bits = ipv4(node.token.text)
        value <<= WORD_BITS - bits
        if node.prefix is not None:
            if node.prefix > WORD_BITS:
                raise FilterError(f"netmask length {node.prefix} is greater than the maximum {WORD_BITS}")
            bits = node.prefix
        mask = _prefix_mask(bits, WORD_BITS)
        if node.mask:
            mask, mask_bits = ipv4(node.mask.text)
            mask <<= WORD_BITS - mask_bits
        if value & ~mask:
            raise FilterError(f"non-network bits set in '{self._expression[node.start : node.end]}'")
        return host.hosts4(self._layers, [(value, mask)], q.protocol, q.direction)

    def _ipv6(self, node: tree.Identifier) -> Condition:
        q, prefix = node.qualifiers, 128 if node.prefix is None else node.prefix
        if prefix > 128:
            raise FilterError(f"the length of an IPv6 prefix must be at most 128, got {prefix}")
        if q.kind not in (None, "host", "net") or (q.kind != "net" and prefix != 128):
            raise FilterError("an IPv6 address goes with 'host' or 'net', and with a shorter prefix with 'net' only")
        value, mask = ipv6(node.token.text), _prefix_mask(prefix, 128)
        if value & ~mask:
            raise FilterError(f"non-network bits set in '{self._expression[node.start : node.end]}'")
        return host.hosts6(self._layers, [(value, mask)], q.protocol, q.direction)

    def _number(self, node: tree.Identifier) -> Condition:
        q, value = node.qualifiers, node.token.value
        match q.kind:
            case None | "host":
                if q.protocol == "link":
                    raise FilterError(f"'{node.token.text}' is no link layer's address")
                return host.hosts4(self._layers, [(value, 0xFFFFFFFF)], q.protocol, q.direction)
            case "net":
                # A network by its number alone: 10 is 10.0.0.0/8.
                mask = 0xFFFFFFFF
                while value and not value & 0xFF000000:
                    value, mask = value << 8, mask << 8 & 0xFFFFFFFF
                return host.hosts4(self._layers, [(value, mask)], q.protocol, q.direction)
            case "port" | "portrange":
                return port.numbered(self._layers, q.protocol, q.direction, value, q.kind)
            case "proto":
                return protocol.proto(self._layers, q.protocol, value)
            case "protochain":
                return protocol.chain(self._layers, q.protocol, value)
        raise FilterError(f"'{q.kind}' wants the name of a host, got a number")

    def _name(self, node: tree.Identifier) -> Condition:
        q, name, layers, names = node.qualifiers, node.token.text, self._layers, self._names
        if q.protocol == "decnet":
            raise FilterError(f"'decnet host' wants an address AREA.NODE, got the name '{name}'")
        match q.kind:
            case None | "host":
                if q.protocol == "link":
                    return host.named_mac(layers, names, name, q.direction, "link host")
                return host.named_host(layers, names, name, (q.protocol, q.protocol), q.direction)
            case "net":
                value, mask = names.network(name), 0xFFFFFFFF
                if not value:
                    raise FilterError(f"unknown network '{name}'")
                while not value & 0xFF000000:
                    value, mask = value << 8, mask << 8 & 0xFFFFFFFF
                return host.hosts4(layers, [(value, mask)], q.protocol, q.direction)
            case "port":
                return port.named_port(layers, names, q.protocol, q.direction, name)
            case "portrange":
                return port.named_range(layers, names, q.protocol, q.direction, name)
            case "gateway":
                return host.gateway(layers, names, name, q.protocol)
            case "proto":
                return protocol.proto(layers, q.protocol, protocol.named(names, q.protocol, name, "proto"))
        value = protocol.named(names, q.protocol, name, "protochain")
        return protocol.chain(layers, q.protocol, value)


def _prefix_mask(length: int, bits: int) -> int:
    """A mask of so many leading bits."""
    return ((1 << length) - 1) << bits - length
