"""A virtual switch: rules as Open vSwitch writes them, changed while it runs, counted exactly."""

import wirespeed as ws

if __name__ == "__main__":
    with ws.Switch() as switch:
        switch.add_port(1, receive=ws.port("pcap:in.pcap"))
        switch.add_port(2, transmit=ws.port("pcap:dns.pcap"))
        switch.add_port(3, transmit=ws.port("pcap:rest.pcap"))
        switch.add_flow("priority=100,udp,tp_dst=53,actions=output:2")
        switch.add_flow("priority=0,actions=output:3")
        print(ws.run(switch))
        for stats in switch.flows():
            print(f"{stats.packets:5} packets by {str(stats.rule.match) or 'the rule for all others'}")
