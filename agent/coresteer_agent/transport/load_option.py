"""Loads on the messages themselves: an eBPF program writes TS and ENP into a TCP option of the job's own connections.

Only an agent whose operator names ports does this (``--load-option-ports``), and the job's other nodes have to do it
as well. It is as authentic as the connection: a peer can change which process of this job is boosted, and nothing else.
"""

from collections.abc import Set

from coresteer_agent.linux.tcp_option import MAX_ADDRESSES, TcpOption
from coresteer_agent.transport.load_carrier import Heard, decode_load, encode_load
from coresteer_core.policies.coscheduling.load import PeerLoad


class LoadOption:
    """Carries loads on the messages of the ports that a TcpOption has, which belongs to the agent.

    valid_s: an agent that stops measuring says nothing any more after this time.
    """

    def __init__(self, option: TcpOption, valid_s: float) -> None:
        self._option = option
        self._valid_s = valid_s

    def exchange(self, load: PeerLoad | None, peers: Set[bytes], now_s: float) -> dict[bytes, Heard]:
        """Write this node's load into its messages from now on, and return that of each peer's last message."""
        self._option.follow(sorted(peers)[:MAX_ADDRESSES])
        self._option.write(None if load is None else encode_load(load), now_s + self._valid_s)
        found = {}
        for address in peers:
            received = self._option.read(address)
            if received is not None and (theirs := decode_load(received[0])) is not None:
                found[address] = Heard(theirs, received[1])
        return found

    def close(self) -> None:
        """Write no load any more, and forget those of peers."""
        self._option.write(None)
        self._option.follow(())
