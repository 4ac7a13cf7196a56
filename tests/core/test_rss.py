"""The RSS hash against the vectors that Microsoft publishes ("Verifying the RSS Hash Calculation")."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresteer_core.node.rss import SYM_OR_XOR, SYM_XOR, Toeplitz, indirection_entry, reciprocal_scale

KEY = bytes.fromhex("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")
VECTORS = [
    ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323E8FC2, 0x51CCC178),
    ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xD718262A, 0xC626B0EA),
    ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xD2D0A5DE, 0x5C2B394A),
    ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x82989176, 0xAFC7327F),
    ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5D1809C5, 0x10E828A2),
    ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2CC18CD5, 0x40207D3D),
    ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0F0C461C, 0xDDE51BBF),
    ("fe80::200:f8ff:fe21:67cf", 38024, "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, 0x4B61E985, 0x02D1FEEF),
]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector[0]))
def test_the_published_vectors_come_out(vector: tuple[str, int, str, int, int, int]) -> None:
    destination, destination_port, source, source_port, of_addresses, with_ports = vector
    toeplitz = Toeplitz(KEY)
    data = ip_address(source).packed + ip_address(destination).packed
    assert toeplitz.hash(data) == of_addresses
    assert toeplitz.hash(data + source_port.to_bytes(2, "big") + destination_port.to_bytes(2, "big")) == with_ports


HASHES = [(0, 0x51CCC178, 0x323E8FC2), (SYM_XOR, 0xAC2B58CA, 0x887BD7BC), (SYM_OR_XOR, 0xA65524FA, 0x277806FE)]


@pytest.mark.parametrize(("input_xfrm", "with_ports", "of_addresses"), HASHES)
def test_a_symmetric_hash_is_that_of_the_combined_addresses_and_ports(
    input_xfrm: int, with_ports: int, of_addresses: int
) -> None:
    """The first published vector; 66.9.149.187 ^ 161.142.100.80 = 227.135.241.235, 2794 | 1766 = 3822."""
    toeplitz = Toeplitz(KEY, input_xfrm)
    peer, local = ip_address("66.9.149.187").packed, ip_address("161.142.100.80").packed
    assert toeplitz.hash_flow(peer, local, bytes.fromhex("0aea 06e6")) == with_ports
    assert toeplitz.hash_flow(peer, local) == of_addresses
    if input_xfrm:
        first = {SYM_XOR: "e387f1eb", SYM_OR_XOR: "e38ff5fb"}[input_xfrm]
        ports = {SYM_XOR: "0c0c", SYM_OR_XOR: "0eee"}[input_xfrm]
        assert with_ports == bit_by_bit(KEY, bytes.fromhex(f"{first} e387f1eb {ports} 0c0c"))
        assert of_addresses == bit_by_bit(KEY, bytes.fromhex(f"{first} e387f1eb"))
        assert toeplitz.hash_flow(local, peer, bytes.fromhex("06e6 0aea")) == with_ports


def bit_by_bit(key: bytes, data: bytes) -> int:
    """The definition: for each set bit of the input, the 32 bits of the key that begin there."""
    window, found = int.from_bytes(key, "big"), 0
    for position in range(8 * len(data)):
        if data[position // 8] >> (7 - position % 8) & 1:
            found ^= window >> (8 * len(key) - 32 - position) & 0xFFFF_FFFF
    return found


@given(
    key=st.binary(min_size=40, max_size=52),
    data=st.sampled_from([8, 12, 32, 36]).flatmap(lambda n: st.binary(min_size=n, max_size=n)),
)
def test_the_tables_agree_with_the_definition_for_every_key(key: bytes, data: bytes) -> None:
    assert Toeplitz(key).hash(data) == bit_by_bit(key[:40], data)


def test_a_key_that_is_too_short_is_refused_with_its_length() -> None:
    with pytest.raises(ValueError, match="has 16 bytes"):
        Toeplitz(bytes(16))


def test_the_low_bits_of_the_hash_pick_the_entry_of_the_table() -> None:
    assert indirection_entry(0x51CCC178, list(range(128))) == 0x78
    assert indirection_entry(0x51CCC178, [3, 5]) == 3


def test_rps_scales_the_hash_over_its_cpus() -> None:
    assert [reciprocal_scale(h, [2, 5, 9]) for h in (0, 0x5555_5555, 0x5555_5556, 0xAAAA_AAAB, 0xFFFF_FFFF)] == [
        2,
        2,
        5,
        9,
        9,
    ]


@given(flow_hash=st.integers(0, 0xFFFF_FFFF), size=st.integers(1, 512))
def test_every_hash_picks_an_entry_that_is_there(flow_hash: int, size: int) -> None:
    assert indirection_entry(flow_hash, range(size)) in range(size)
    assert reciprocal_scale(flow_hash, range(size)) in range(size)
