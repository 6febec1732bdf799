"""Passwords, tokens and proofs are not recorded."""

from __future__ import annotations

import pytest

from odradek.clients.recording.conversation import TOKEN_KEY, Asked
from odradek.clients.recording.decoding import decoded_request
from odradek.clients.recording.secrets import (
    HIDDEN,
    has_secrets,
    request_without_secrets,
    response_without_secrets,
)
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from odradek.protocol.messages.delegation_tokens import (
    CreateDelegationTokenResponse,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse
from odradek.protocol.messages.scram import AlterUserScramCredentialsRequest
from odradek.protocol.messages.topics import CreateTopicsRequest
from odradek.protocol.schema import Message
from tests.clients.recording.requests import asked_by, key_of, request_frame, response_frame

SECRET = b"hunter2"
TOKEN = DescribeDelegationTokenResponse.DescribedDelegationToken(hmac=SECRET)
UPSERTION = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(name="alice", salt=SECRET, salted_password=SECRET)


def altered(setting: str) -> Message:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        configs=[IncrementalAlterConfigsRequest.AlterableConfig(name=setting, value=SECRET.decode())]
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


def altered_as_before(setting: str) -> Message:
    resource = AlterConfigsRequest.AlterConfigsResource(
        configs=[AlterConfigsRequest.AlterableConfig(name=setting, value=SECRET.decode())]
    )
    return AlterConfigsRequest(resources=[resource])


def created(setting: str) -> Message:
    config = CreateTopicsRequest.CreatableTopicConfig(name=setting, value=SECRET.decode())
    return CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="orders", configs=[config])])


@pytest.mark.parametrize(
    "request_",
    [
        SaslAuthenticateRequest(auth_bytes=SECRET),
        AlterUserScramCredentialsRequest(upsertions=[UPSERTION]),
        RenewDelegationTokenRequest(hmac=SECRET),
        ExpireDelegationTokenRequest(hmac=SECRET),
        altered("ssl.keystore.password"),
        altered("listener.name.outside.scram-sha-256.sasl.jaas.config"),
        altered_as_before("password.encoder.secret"),
        created("remote.storage.secret.key"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_request_with_a_secret_is_recorded_without(request_: Message) -> None:
    low, high = type(request_).__schema__.versions
    for version in range(low, high + 1):
        frame = request_frame(request_, version)
        asked = asked_by(frame)
        assert SECRET in frame
        assert has_secrets(asked, is_request=True)
        hidden = request_without_secrets(asked, frame)
        assert hidden is not None
        assert SECRET not in hidden
        assert decoded_request(asked, hidden) is not None


@pytest.mark.parametrize(
    "response",
    [
        SaslAuthenticateResponse(auth_bytes=SECRET),
        CreateDelegationTokenResponse(hmac=SECRET),
        DescribeDelegationTokenResponse(tokens=[TOKEN]),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_response_with_a_secret_is_recorded_without(response: Message) -> None:
    version = type(response).__schema__.versions[1]
    frame = response_frame(response, version)
    asked = Asked(key_of(response), version, 1, "tester", 0)
    assert has_secrets(asked, is_request=False)
    hidden = response_without_secrets(asked, frame)
    assert hidden is not None
    assert SECRET in frame
    assert SECRET not in hidden


@pytest.mark.parametrize(
    "setting", ["rsm.config.aws.secret.access.key", "confluent.api.key", "sasl.jaas.CONFIG", "my.Passphrase.file"]
)
def test_settings_that_may_be_secrets_of_others_are_recorded_without_their_values(setting: str) -> None:
    frame = request_frame(altered(setting), 1)
    assert SECRET not in (request_without_secrets(asked_by(frame), frame) or frame)


@pytest.mark.parametrize(
    "setting", ["password.encoder.iterations", "delegation.token.max.lifetime.ms", "segment.bytes"]
)
def test_settings_that_are_known_to_be_none_are_recorded(setting: str) -> None:
    frame = request_frame(altered(setting), 1)
    assert request_without_secrets(asked_by(frame), frame) is None


def test_other_settings_and_requests_are_recorded_as_they_are() -> None:
    frame = request_frame(altered("retention.ms"), 1)
    assert request_without_secrets(asked_by(frame), frame) is None
    assert not has_secrets(asked_by(request_frame(MetadataRequest(), 1)), is_request=True)


def test_what_cannot_be_decoded_is_recorded_as_its_header() -> None:
    known = request_frame(SaslAuthenticateRequest(auth_bytes=SECRET), 1)
    frame = known[:3] + b"\x09" + known[4:]
    assert request_without_secrets(asked_by(frame), frame) == frame[:8]


def test_what_is_malformed_is_recorded_as_its_header() -> None:
    frame = request_frame(SaslAuthenticateRequest(auth_bytes=SECRET), 1)[:-1]
    assert request_without_secrets(asked_by(frame), frame) == frame[:8]
    answer = response_frame(SaslAuthenticateResponse(auth_bytes=SECRET), 1)[:-9]
    assert response_without_secrets(Asked(ApiKey.SASL_AUTHENTICATE, 1, 1, "tester", 0), answer) == answer[:4]


def test_a_token_without_a_header_is_not_recorded() -> None:
    token = Asked(TOKEN_KEY, 0, 0, None, 1)
    assert has_secrets(token, is_request=True)
    assert request_without_secrets(token, b"\0alice\0hunter2") == b""
    assert response_without_secrets(token, b"v=proof") == b""


def test_a_hidden_value_says_so() -> None:
    frame = request_frame(altered("ssl.key.password"), 1)
    hidden = request_without_secrets(asked_by(frame), frame)
    assert hidden is not None
    assert HIDDEN.encode() in hidden
