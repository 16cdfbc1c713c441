"""Tests of srcjit, by area; `harness` and `programs` are shared by them."""
