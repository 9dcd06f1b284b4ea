"""Where a wide area can be made: tests that need one are left out elsewhere, and say why."""

import pytest

from overlane.testbed.wide_area import why_not

WHY_NOT = why_not()
needs_a_wide_area = pytest.mark.skipif(WHY_NOT is not None, reason=f"no wide area can be made here: {WHY_NOT}")
