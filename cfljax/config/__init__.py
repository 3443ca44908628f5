"""From a spec (TOML and flags) to the list of its runs, with checked and frozen options. Nothing
here trains or uses a device.

Its way through the modules: `toml` text → tables; `layers`, `flags` tables → one tidy spec;
`tables`, `values` → drafts, in which each option has its values; `grid`, `rules` → their
combinations; `data`, `train`, `transit`, `run` → checked options and ids (`frozen`). `read` leads
through all of them, `plugins` loads what a spec names from outside the package.

A spec is a set of tables; see `read_spec`. Grid: any value may be a list (for an option that is a
list itself: a list of lists), integers may be ranges ("0:10", "0:10:2"), numbers "log(1e-4, 1e-1,
7)" or "lin(0, 1, 5)". `data`, `model` and `train` may be lists of tables; a name may be a list of
names, and then an option counts for those that have it.

- `[defaults]`: options for every `[[method]]` that has them and does not say otherwise.
- `[[method]]`: `name`, its options, `label` (what tables call it) and `train = {…}` (training
  numbers for it alone).
- `[[include]]`: the whole grid once more with these values laid over it (cfljax.config.layers):
  pairs of options that belong together, such as a data set and its learning rate.
- `[[exclude]]`: combinations to leave out (cfljax.config.rules).
- `[size.small]`: values laid over the spec with `--set size=small`; `full` is the spec as it
  stands.
- `samples = 50`: options written `log(1e-4, 1e-1)`, `lin(0, 1)` or `{ low = 0.1, high = 1.0, log =
  true }` are drawn 50 times, beside the grid; `search_seed` (0) seeds the draws.
"""

from cfljax.config.data import Arrive, Data, draw_arrivals
from cfljax.config.read import Spec, read_spec
from cfljax.config.run import NamedOptions, Run
from cfljax.config.train import Train

__all__ = ["Arrive", "NamedOptions", "Data", "Run", "Spec", "Train", "draw_arrivals", "read_spec"]
