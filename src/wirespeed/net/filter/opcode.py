"""The numbers of classic BPF: instruction classes, sizes, modes and operations.

*Source:* McCanne and Jacobson, "The BSD Packet Filter", 1993; ``include/uapi/linux/bpf_common.h`` and ``filter.h``.
"""

LD, LDX, ST, STX, ALU, JMP, RET, MISC = range(8)
W, H, B = 0x00, 0x08, 0x10
IMM, ABS, IND, MEM, LEN, MSH = 0x00, 0x20, 0x40, 0x60, 0x80, 0xA0
ADD, SUB, MUL, DIV, OR, AND, LSH, RSH, NEG, MOD, XOR = range(0x00, 0xB0, 0x10)
JA, JEQ, JGT, JGE, JSET = 0x00, 0x10, 0x20, 0x30, 0x40
K, X, A = 0x00, 0x08, 0x10
TAX, TXA = 0x00, 0x80

WORDS = 16  # of scratch memory, BPF_MEMWORDS
LONGEST = 4096  # instructions of one program, BPF_MAXINSNS
FARTHEST = 255  # that jt and jf reach, in instructions
MASK = 0xFFFFFFFF  # the registers have 32 bits

SIZES = {1: B, 2: H, 4: W}
BYTES = {B: 1, H: 2, W: 4}

# What the Linux kernel answers when a program loads from these "offsets": facts beside the packet.
AD_OFF = 0xFFFFF000  # SKF_AD_OFF, -0x1000
AD_PKTTYPE = AD_OFF + 4
AD_IFINDEX = AD_OFF + 8
AD_VLAN_TAG = AD_OFF + 44
AD_VLAN_TAG_PRESENT = AD_OFF + 48
SPECIAL = 0x80000000  # from here on the kernel sees a negative offset: never bytes of the packet by their place
