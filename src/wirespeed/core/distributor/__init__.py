"""The distributor: items spread over workers so that those of one tag are on one worker at a time, in order."""
