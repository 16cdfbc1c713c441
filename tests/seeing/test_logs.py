"""`SRCJIT_LOGS` uses the standard logging module and says what it does not know."""

from __future__ import annotations

import logging

import pytest

from srcjit import logs


@pytest.fixture(autouse=True)
def silent():
    yield
    logs.configure("")


def test_named_logs_go_to_standard_error(capsys):
    logs.configure("breaks, code")
    logs.logger("breaks").info("a break")
    logs.logger("code").info("def f(): ...")
    logs.logger("guards").info("not asked for")
    assert capsys.readouterr().err == "a break\ndef f(): ...\n"


def test_variable(capsys, monkeypatch):
    monkeypatch.setenv("SRCJIT_LOGS", "recompiles")
    logs.configure()
    logs.logger("recompiles").info("again")
    assert capsys.readouterr().err == "again\n"


def test_unknown_name_is_one_warning(caplog):
    logs.configure("breaks,brekas,graph")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "SRCJIT_LOGS: no log is called 'brekas' or 'graph'; "
        "there are breaks, recompiles, guards, graphs, autotune, code"
    )
    assert logs.logger("breaks").isEnabledFor(logging.INFO)


def test_configuring_twice_prints_once(capsys):
    logs.configure("breaks")
    logs.configure("breaks")
    logs.logger("breaks").info("once")
    assert capsys.readouterr().err == "once\n"
    logs.configure("")
    logs.logger("breaks").info("off")
    assert capsys.readouterr().err == ""


def test_a_program_can_listen_without_the_variable(caplog):
    with caplog.at_level(logging.INFO, logger="srcjit.breaks"):
        logs.logger("breaks").info("heard")
    assert caplog.messages == ["heard"]


def test_unknown_logger():
    with pytest.raises(KeyError):
        logs.logger("graph")
