"""R39: 1,000 reorderings and delays of everything that streams leave open, and no batch is torn in any of them."""

from __future__ import annotations

import pytest
from device_drill import IN_USE, NO_ROOM, STYLES, Style, drill

pytestmark = pytest.mark.filterwarnings(NO_ROOM)
SEEDS = 1000


@pytest.mark.parametrize("style", STYLES, ids=str)
def test_r39_no_order_of_the_device_tears_a_batch(style: Style) -> None:
    """The 1,000 seeds are shared by the styles; nothing may be found in any."""
    for seed in range(STYLES.index(style), SEEDS, len(STYLES)):
        assert drill(IN_USE, seed, style) == [], f"seed {seed}"
