"""beartype, but for `Self`: it takes that in a decorated class only, and the import hook decorates the methods."""

from typing import Any, Self

from beartype import BeartypeConf, FrozenDict, beartype

checked = beartype(conf=BeartypeConf(hint_overrides=FrozenDict({Self: Any})))
