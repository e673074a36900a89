"""Where workload tokens come from: the requests that the platforms expect, and what they answer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gemel import AuthorizationFailed
from gemel.auth.client.workload import (
    AwsCredentials,
    AwsToken,
    AzureToken,
    EnvironmentToken,
    FileToken,
    GcpToken,
    GitHubActionsToken,
    KubernetesToken,
    WorkloadToken,
    signed_request,
)
from gemel.auth.flow import HttpRequest, HttpResponse

VARIABLES = [
    "ACTIONS_ID_TOKEN_REQUEST_URL",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "GCE_METADATA_HOST",
    "IDENTITY_ENDPOINT",
    "IDENTITY_HEADER",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
]


@pytest.fixture(autouse=True)
def _no_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def drive(
    token: WorkloadToken, *bodies: bytes | HttpResponse, audience: str = "https://as.example.com"
) -> tuple[str, list[HttpRequest]]:
    """Run a source to its end, with these answers."""
    flow, requests = token.fetch(audience), []
    try:
        requests.append(next(flow))
        for body in bodies:
            response = body if isinstance(body, HttpResponse) else HttpResponse(200, {}, body)
            requests.append(flow.send(response))
    except StopIteration as done:
        assert len(requests) == len(bodies)
        return str(done.value), requests
    pytest.fail(f"another request: {requests[-1]}")


def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    for source in (FileToken(path), KubernetesToken(path)):
        path.write_text("first\n")
        assert drive(source)[0] == "first"
        path.write_text("second")
        assert drive(source)[0] == "second"
    path.unlink()
    with pytest.raises(AuthorizationFailed, match="No such file"):
        drive(FileToken(path))
    path.write_bytes(b"a" * 1_000_000)
    with pytest.raises(AuthorizationFailed, match="no usable token"):
        drive(FileToken(path))


def test_a_variable_is_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    source = EnvironmentToken("MY_TOKEN")
    with pytest.raises(AuthorizationFailed, match="MY_TOKEN is not set"):
        drive(source)
    for value in ("first", "second"):
        monkeypatch.setenv("MY_TOKEN", value)
        assert drive(source)[0] == value


def test_github_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AuthorizationFailed, match="id-token: write"):
        drive(GitHubActionsToken())
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", "https://pipelines.example.com/x?api-version=2.0")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "runner-token")
    token, (request,) = drive(GitHubActionsToken(), b'{"value": "jwt", "count": 1}')
    assert token == "jwt"
    assert request.url == "https://pipelines.example.com/x?api-version=2.0&audience=https%3A%2F%2Fas.example.com"
    assert ("Authorization", "Bearer runner-token") in request.headers
    assert GitHubActionsToken().urls() == ["https://pipelines.example.com/x?api-version=2.0"]


def test_google_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    google = HttpResponse(200, {"metadata-flavor": "Google"}, b"jwt")
    token, (request,) = drive(GcpToken(), google)
    path = "/computeMetadata/v1/instance/service-accounts/default/identity?audience=https%3A%2F%2Fas.example.com&format=full"
    assert (token, request.url) == ("jwt", f"http://metadata.google.internal{path}")
    assert request.headers == (("Metadata-Flavor", "Google"),)
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:8080")
    assert GcpToken().urls() == ["http://127.0.0.1:8080"]
    assert "/robot@p.example/identity" in drive(GcpToken("robot@p.example"), google)[1][0].url
    with pytest.raises(AuthorizationFailed, match="not the metadata server"):
        drive(GcpToken(), b"<html>")


def test_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    token, (request,) = drive(AzureToken(), b'{"access_token": "jwt"}', audience="api://notes")
    query = "api-version=2018-02-01&resource=api%3A%2F%2Fnotes"
    assert (token, request.url) == ("jwt", f"http://169.254.169.254/metadata/identity/oauth2/token?{query}")
    assert request.headers == (("Metadata", "true"),)
    monkeypatch.setenv("IDENTITY_ENDPOINT", "http://localhost:4141/msi/token")
    monkeypatch.setenv("IDENTITY_HEADER", "header-secret")
    _, (request,) = drive(AzureToken("user-assigned"), b'{"access_token": "jwt"}', audience="api://notes")
    query = "api-version=2019-08-01&resource=api%3A%2F%2Fnotes&client_id=user-assigned"
    assert request.url == f"http://localhost:4141/msi/token?{query}"
    assert request.headers == (("X-IDENTITY-HEADER", "header-secret"),)


XML = b"<GetWebIdentityTokenResponse><R><WebIdentityToken>jwt</WebIdentityToken></R></GetWebIdentityTokenResponse>"
ROLE = b'{"AccessKeyId": "AKID", "SecretAccessKey": "secret", "Token": "session", "Expiration": "2026-07-28T00:00:00Z"}'


def test_aws_with_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    token, (request,) = drive(AwsToken(), XML)
    assert (token, request.url) == ("jwt", "https://sts.eu-west-1.amazonaws.com/")
    assert request.body is not None
    assert (
        b"Action=GetWebIdentityToken&Version=2011-06-15&Audience.member.1=https%3A%2F%2Fas.example.com" in request.body
    )
    assert b"SigningAlgorithm=RS256&DurationSeconds=300" in request.body
    monkeypatch.setenv("AWS_REGION", "cn-north-1")
    assert drive(AwsToken(), XML)[1][0].url == "https://sts.cn-north-1.amazonaws.com.cn/"
    monkeypatch.setenv("AWS_REGION", "evil.example/")
    with pytest.raises(AuthorizationFailed, match="region"):
        drive(AwsToken(), XML)


def test_aws_with_credentials_of_the_instance() -> None:
    token, requests = drive(AwsToken(), b"session-1", b"my-role\n", b"session-2", ROLE, b"session-3", b"us-east-2", XML)
    base = "http://169.254.169.254/latest"
    credentials = f"{base}/meta-data/iam/security-credentials/"
    region = f"{base}/meta-data/placement/region"
    places = [
        f"{base}/api/token",
        credentials,
        f"{base}/api/token",
        f"{credentials}my-role",
        f"{base}/api/token",
        region,
    ]
    assert [request.url for request in requests] == [*places, "https://sts.us-east-2.amazonaws.com/"]
    assert [request.method for request in requests] == ["PUT", "GET", "PUT", "GET", "PUT", "GET", "POST"]
    assert ("X-aws-ec2-metadata-token", "session-1") in requests[1].headers
    assert ("x-amz-security-token", "session") in requests[-1].headers
    assert token == "jwt"


def test_aws_with_credentials_of_the_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/1")
    assert drive(AwsToken(), ROLE, XML)[1][0].url == "http://169.254.170.2/v2/credentials/1"
    monkeypatch.delenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials")
    (tmp_path / "token").write_text("pod-token")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    _, requests = drive(AwsToken(), ROLE, XML)
    assert (requests[0].url, requests[0].headers) == (
        "http://169.254.170.23/v1/credentials",
        [("Authorization", "pod-token")],
    )
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://evil.example/credentials")
    with pytest.raises(AuthorizationFailed, match="neither https nor on this machine"):
        drive(AwsToken(), ROLE, XML)


@pytest.mark.parametrize(
    ("session", "signature"),
    [
        (None, "451db25a55132e190a42c3e47100f2d27d8696ef5c719a75ad04699d2c12a7aa"),
        ("session/token==", "c553ae740970c86cd853ab979f81b965fb557222fef809f53efe89ae362aecd9"),
    ],
)
def test_requests_to_aws_are_signed_as_its_own_library_does(session: str | None, signature: str) -> None:
    """The signatures were computed by botocore 1.42."""
    credentials = AwsCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", session)
    body = b"Action=GetWebIdentityToken&Audience.member.1=https%3A%2F%2Fas.example.com"
    moment = time.strptime("20260728T123456", "%Y%m%dT%H%M%S")
    request = signed_request("https://sts.eu-west-1.amazonaws.com/", body, credentials, "eu-west-1", moment)
    assert dict(request.headers)["authorization"].endswith(f"Signature={signature}")
    assert "MDENG" not in repr(credentials) + repr(request)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500])
@pytest.mark.parametrize("kind", [GcpToken, AzureToken, AwsToken, GitHubActionsToken])
def test_an_error_of_the_platform_is_named_without_secrets(
    kind: type[WorkloadToken], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", "https://pipelines.example.com/x")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "canary-secret")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-secret")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with pytest.raises(AuthorizationFailed, match=f"status {status}") as caught:
        drive(kind(), HttpResponse(status, {"metadata-flavor": "Google"}, b"canary-secret"))
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"value": 1}', b'{"value": "a b"}', b'{"value": "a\\nb"}', b"\xff"]
)
def test_an_answer_without_a_usable_token(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", "https://pipelines.example.com/x")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "t")
    with pytest.raises(AuthorizationFailed, match="no usable token"):
        drive(GitHubActionsToken(), body)
