"""The online partial evaluator (see `evaluator`)."""

# NOTE: handlers of statements and expressions name one another, so that their modules can
# be imported in one order only; this is it, whichever of them is asked for.
from . import statements as statements
