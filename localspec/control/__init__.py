"""What a row is worth: prices and limits handed to drafters."""

from localspec.control.price import FixedController as FixedController
from localspec.control.price import Limits as Limits
from localspec.control.price import Price as Price
from localspec.control.threads import ThreadTuner as ThreadTuner
from localspec.control.threads import core_count as core_count
