"""Run a graph inside asyncio (or a notebook): it works in threads of its own and never holds the event loop up."""

import asyncio

import wirespeed as ws


@ws.function
def forward(pkt):
    """Forward everything."""
    return ws.FORWARD


async def main():
    """Watch a run once in a while, as any other coroutine would."""
    with ws.start(ws.port("generator:count=20M") >> forward >> ws.port("null:")) as running:
        while running.alive:
            print(f"{running.report().packets:,} packets")
            await asyncio.sleep(0.1)
    print(running.report())


if __name__ == "__main__":
    asyncio.run(main())
