"""QNN errors by the messages that users reported: each with its meaning and what to do."""

from __future__ import annotations

import pytest

from edge_app.qnn_errors import QNN_ERRORS, explain_code, explain_qnn, remedy_of


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("QNN SetupBackend failed Failed to create device. Error: 14001", "QNN_DEVICE_ERROR_INVALID_CONFIG"),
        ("QNN graph execute error. Error code: 6001", "QNN_GRAPH_ERROR_INVALID_HANDLE"),
        ("Failed to create context from binary. Error code: 5005", "QNN_CONTEXT_ERROR_CREATE_FROM_BINARY"),
        ("Failed to create context from binary with err 0x138d", "QNN_CONTEXT_ERROR_CREATE_FROM_BINARY"),
        ("Failed to finalize QNN graph. Error code: 1002", "QNN_COMMON_ERROR_MEM_ALLOC"),
        ("graphFinalize failed: QNN_COMMON_ERROR_MEM_ALLOC", "QNN_COMMON_ERROR_MEM_ALLOC"),
        ("Failed to load skel, error: 4000", "QNN_BACKEND_ERROR_CANNOT_INITIALIZE"),
        ("contextCreate returned error code 5000", "QNN_CONTEXT_ERROR_INVALID_ARGUMENT"),
        ("Failed to interpret QNN context binary. Error code 30010", "QNN_SYSTEM_CONTEXT_ERROR_MALFORMED_BINARY"),
        ("[ONNXRuntimeError] : 5 : ENGINE_ERROR : something", "ENGINE_ERROR"),
        ("ENGINE_ERROR : Error code: 1100", "QNN_COMMON_ERROR_GENERAL"),
        ("ENGINE_ERROR : NPU crashed. SSR detected during QNN graph execute. Error code: 6031", "SSR"),
    ],
)
def test_a_message_is_known_by_its_number_its_name_or_the_crash_it_tells_of(message, name) -> None:
    error = explain_qnn(message)
    assert error is not None
    assert error.name == name
    assert remedy_of(message) == f"{name}: {error.meaning}; {error.remedy}"


@pytest.mark.parametrize(
    "message", ["all is well", "", "shape mismatch: 1100 rows", "Error code: 4242", "took 14001 us", "status: 200"]
)
def test_what_is_no_qnn_error_is_not_taken_for_one(message) -> None:
    assert explain_qnn(message) is None
    assert remedy_of(message) is None


def test_the_code_is_in_the_low_16_bits_of_a_handle() -> None:
    error = explain_code((0x1234 << 16) | 14001)
    assert error is not None
    assert error.name == "QNN_DEVICE_ERROR_INVALID_CONFIG"


def test_every_error_has_one_place_a_meaning_and_a_remedy() -> None:
    codes = [error.code for error in QNN_ERRORS if error.code is not None]
    assert len(set(codes)) == len(codes)
    assert len({error.name for error in QNN_ERRORS}) == len(QNN_ERRORS)
    assert all(error.meaning and error.remedy for error in QNN_ERRORS)
    assert {1002, 1100, 5000, 5005, 14001, 30010} <= set(codes)
