"""The online partial evaluator (see `evaluator`)."""
