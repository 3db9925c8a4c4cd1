"""The end of a measured stretch while another thread allocates: what is held is never above the peak."""

from __future__ import annotations

import threading

from stormlog._torch.meter import Counters, HostMeter, Peak, end_stretch

_PAGE = 4096


def test_peak_of_a_stretch_is_at_least_what_is_held_at_its_end() -> None:
    meter = HostMeter()
    stop = threading.Event()
    kept: list[bytearray] = []

    def grow() -> None:
        while not stop.is_set() and len(kept) < 2_000:
            kept.append(bytearray(b"x") * (16 * _PAGE))

    grower = threading.Thread(target=grow)
    grower.start()
    try:
        ends: list[tuple[Peak, Counters]] = []
        while len(ends) < 300 or len(kept) <= 10:
            ends.append(end_stretch(meter.begin(), meter))
    finally:
        stop.set()
        grower.join()
    assert [held.allocated for peak, held in ends if peak.allocated < held.allocated] == []
    assert [held.reserved for peak, held in ends if peak.reserved < held.reserved] == []
