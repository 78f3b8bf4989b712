"""What the program of a failing case needs: ``from metamorphic.again import *``."""

from metamorphic.cases import Case, find
from metamorphic.circumstances import Ranks, Stops, Workers
from metamorphic.program import Places
from metamorphic.running import Leg

__all__ = ["Case", "Leg", "Places", "Ranks", "Stops", "Workers", "find"]
