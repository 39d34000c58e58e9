"""Community ID, against the values that the specification's own tool made of its captures."""

import json

from wirespeed.net.community import community_id


def test_case_56_every_flow_of_the_baseline_has_its_identifier(captures) -> None:
    folder = captures / "_expected/community-id"
    for name, seed in (("baseline_deflt", 0), ("baseline_seed1", 1)):
        flows = json.loads((folder / f"{name}.json").read_text())
        assert flows
        for flow in flows:
            assert identifier(flow, seed) == flow["communityid"], flow


def identifier(flow: dict, seed: int) -> str:
    return community_id(flow["saddr"], flow["daddr"], flow["proto"], flow.get("sport"), flow.get("dport"), seed)
