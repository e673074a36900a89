"""Where a program finds the token that tells which workload it is: files, variables, GitHub Actions, AWS, Azure, Google Cloud.

Such a token is a signed JWT that the platform issues. It is the assertion of `WorkloadIdentity`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from gemel.auth.flow import Flow, HttpRequest, HttpResponse
from gemel.auth.url_rules import describe, is_loopback_name
from gemel.errors import AuthorizationFailed

#: Maximum bytes of a token.
MAX_TOKEN = 64 * 1024
_TOKEN = re.compile(r"[\x21-\x7e]+")
#: The token of the service account of a pod.
KUBERNETES_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"


class WorkloadToken(Protocol):
    """A source of workload tokens."""

    def urls(self) -> Sequence[str]:
        """The URLs on this machine or platform that it requests, besides those of the public Internet."""
        ...

    def fetch(self, audience: str) -> Flow[str]:
        """Get a token. It is asked for each time that an access token is needed, and never stored.

        Args:
            audience: The authorization server that the token is meant for.

        Raises:
            AuthorizationFailed: There is none.
        """
        ...


class FileToken:
    """A token in a file that the platform keeps up to date, such as a projected service account token.

    Args:
        path: The file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def urls(self) -> Sequence[str]:
        """None."""
        return ()

    def fetch(self, audience: str) -> Flow[str]:
        """Read the file.

        Args:
            audience: Not used: the audience is that with which the platform issued the token.

        Raises:
            AuthorizationFailed: There is no usable token.
        """
        yield from ()
        try:
            with self._path.open("rb") as file:
                data = file.read(MAX_TOKEN + 1)
        except OSError as exc:
            raise AuthorizationFailed(f"The workload token can't be read: {self._path}: {exc.strerror}") from None
        return _check(data.decode("ascii", "replace"), str(self._path))


class KubernetesToken(FileToken):
    """The token of the service account of a pod.

    Args:
        path: Where the token is mounted. For a token with an audience of your own, mount a projected volume.
    """

    def __init__(self, path: str | os.PathLike[str] = KUBERNETES_TOKEN) -> None:
        super().__init__(path)


class EnvironmentToken:
    """A token in an environment variable, which is read anew each time.

    Args:
        name: The variable.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def urls(self) -> Sequence[str]:
        """None."""
        return ()

    def fetch(self, audience: str) -> Flow[str]:
        """Read the variable.

        Args:
            audience: Not used: the audience is that with which the platform issued the token.

        Raises:
            AuthorizationFailed: There is no usable token.
        """
        yield from ()
        return _check(_variable(self._name, "the workload token"), f"the variable {self._name}")


class GitHubActionsToken:
    """The OpenID Connect token of a job of GitHub Actions. The job needs `permissions: id-token: write`.

    See https://docs.github.com/en/actions/reference/security/oidc.
    """

    def urls(self) -> Sequence[str]:
        """Where the runner says."""
        return [url] if (url := os.environ.get("ACTIONS_ID_TOKEN_REQUEST_URL")) else []

    def fetch(self, audience: str) -> Flow[str]:
        """Ask the runner for a token.

        Args:
            audience: The authorization server that the token is meant for.

        Raises:
            AuthorizationFailed: There is no usable token.
        """
        need = "a token of GitHub Actions: add `permissions: id-token: write` to the job"
        url = _variable("ACTIONS_ID_TOKEN_REQUEST_URL", need)
        token = _variable("ACTIONS_ID_TOKEN_REQUEST_TOKEN", need)
        mark = "&" if "?" in url else "?"
        headers = (("Authorization", f"Bearer {token}"), ("Accept", "application/json"))
        response = yield HttpRequest("GET", f"{url}{mark}{urlencode({'audience': audience})}", headers)
        return _check(_member(response, "value", url), "GitHub Actions")


class GcpToken:
    """The identity token of a service account on Google Cloud, from the metadata server.

    Args:
        service_account: Its email address; by default that of the instance.
    """

    def __init__(self, service_account: str = "default") -> None:
        self._account = service_account

    def _base(self) -> str:
        return f"http://{os.environ.get('GCE_METADATA_HOST') or 'metadata.google.internal'}"

    def urls(self) -> Sequence[str]:
        """The metadata server."""
        return [self._base()]

    def fetch(self, audience: str) -> Flow[str]:
        """Ask the metadata server for a token.

        Args:
            audience: The authorization server that the token is meant for.

        Raises:
            AuthorizationFailed: There is no usable token.
        """
        path = f"/computeMetadata/v1/instance/service-accounts/{quote(self._account, safe='@')}/identity"
        url = f"{self._base()}{path}?{urlencode({'audience': audience, 'format': 'full'})}"
        response = yield HttpRequest("GET", url, (("Metadata-Flavor", "Google"),))
        if response.headers.get("metadata-flavor", "").lower() != "google":
            raise AuthorizationFailed(f"{describe(url)} is not the metadata server of Google Cloud")
        return _check(_text(response, url), "Google Cloud")


class AzureToken:
    """The token of a managed identity on Azure: of App Service and Functions, or of a virtual machine.

    The audience is an application of Entra ID, such as `api://notes`: pass it as `WorkloadIdentity(…, audience=…)`.

    Args:
        client_id: The client id of a user-assigned identity; by default the identity of the system.
    """

    def __init__(self, client_id: str | None = None) -> None:
        self._client_id = client_id

    def _endpoint(self) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        """The URL, its API version and its headers."""
        endpoint, header = os.environ.get("IDENTITY_ENDPOINT"), os.environ.get("IDENTITY_HEADER")
        if endpoint and header:
            return endpoint, "2019-08-01", (("X-IDENTITY-HEADER", header),)
        return "http://169.254.169.254/metadata/identity/oauth2/token", "2018-02-01", (("Metadata", "true"),)

    def urls(self) -> Sequence[str]:
        """The identity endpoint."""
        return [self._endpoint()[0]]

    def fetch(self, audience: str) -> Flow[str]:
        """Ask the identity endpoint for a token.

        Args:
            audience: The application of Entra ID that the token is meant for.

        Raises:
            AuthorizationFailed: There is no usable token.
        """
        endpoint, version, headers = self._endpoint()
        query = {"api-version": version, "resource": audience}
        if self._client_id is not None:
            query["client_id"] = self._client_id
        response = yield HttpRequest("GET", f"{endpoint}?{urlencode(query)}", headers)
        return _check(_member(response, "access_token", endpoint), "Azure")


class AwsToken:
    """The token of a role on AWS, by `GetWebIdentityToken` of the Security Token Service.

    Outbound web identity federation must be enabled for the account. The credentials of the role are those of the
    environment, of the container (ECS, EKS), or of the instance (IMDSv2). Pods of EKS may use `KubernetesToken` instead.

    Args:
        region: The region of the service; by default that of the environment or the instance.
        algorithm: "RS256" or "ES384".
        lifetime: Seconds that the token is valid, 60 to 3600.
    """

    def __init__(self, *, region: str | None = None, algorithm: str = "RS256", lifetime: int = 300) -> None:
        self._region = region
        self._algorithm = algorithm
        self._lifetime = lifetime

    def urls(self) -> Sequence[str]:
        """The endpoints of credentials, and an endpoint of your own for the service."""
        own = os.environ.get("AWS_ENDPOINT_URL_STS")
        return [_instance_url(), *([url] if (url := _container_url()) else []), *([own] if own else [])]

    def fetch(self, audience: str) -> Flow[str]:
        """Sign a request with the credentials of the role, and send it.

        Args:
            audience: The authorization server that the token is meant for.

        Raises:
            AuthorizationFailed: There is no usable token.
        """
        credentials = yield from _aws_credentials()
        region = self._region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        if not region:
            region = yield from _instance_metadata("/latest/meta-data/placement/region")
        if re.fullmatch(r"[a-z0-9-]{1,40}", region) is None:
            raise AuthorizationFailed("The AWS region is not valid: set AWS_REGION")
        url = os.environ.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.amazonaws.com{_suffix(region)}/"
        form = {
            "Action": "GetWebIdentityToken",
            "Version": "2011-06-15",
            "Audience.member.1": audience,
            "SigningAlgorithm": self._algorithm,
            "DurationSeconds": str(self._lifetime),
        }
        response = yield signed_request(url, urlencode(form).encode(), credentials, region, time.gmtime())
        match = re.search(r"<WebIdentityToken>([^<]+)</WebIdentityToken>", _text(response, url))
        return _check(match[1] if match is not None else "", describe(url))


# ---------------------------------------------------------------- AWS


class AwsCredentials(msgspec.Struct, frozen=True, rename="pascal"):
    """Credentials of a role, as the metadata services write them."""

    access_key_id: str
    secret_access_key: str
    token: str | None = None

    def __repr__(self) -> str:
        return "<AwsCredentials>"


def signed_request(
    url: str, body: bytes, credentials: AwsCredentials, region: str, moment: time.struct_time
) -> HttpRequest:
    """Sign a form for the Security Token Service (AWS Signature Version 4).

    Args:
        url: The URL of the service.
        body: The form.
        credentials: The credentials of the caller.
        region: The region of the service.
        moment: The time, in UTC.

    Returns:
        The request.
    """
    parts = urlsplit(url)
    date, stamp = time.strftime("%Y%m%d", moment), time.strftime("%Y%m%dT%H%M%SZ", moment)
    headers = {
        "content-type": "application/x-www-form-urlencoded; charset=utf-8",
        "host": parts.netloc,
        "x-amz-date": stamp,
    }
    if credentials.token is not None:
        headers["x-amz-security-token"] = credentials.token
    names = ";".join(sorted(headers))
    lines = [f"{name}:{headers[name]}" for name in sorted(headers)]
    request = ["POST", parts.path or "/", parts.query, *lines, "", names, hashlib.sha256(body).hexdigest()]
    scope = f"{date}/{region}/sts/aws4_request"
    digest = hashlib.sha256("\n".join(request).encode()).hexdigest()
    key = f"AWS4{credentials.secret_access_key}".encode()
    for part in (date, region, "sts", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}".encode(), "sha256").hex()
    value = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    sent = [(name, value) for name, value in headers.items() if name != "host"]
    return HttpRequest("POST", url, [*sent, ("authorization", value)], body)


def _aws_credentials() -> Flow[AwsCredentials]:
    """Find the credentials of the role: in the environment, of the container, of the instance."""
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if key and secret:
        return AwsCredentials(key, secret, os.environ.get("AWS_SESSION_TOKEN") or None)
    if (url := _container_url()) is not None:
        headers = []
        if path := os.environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
            headers.append(("Authorization", (yield from FileToken(path).fetch(""))))
        elif token := os.environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN"):
            headers.append(("Authorization", _check(token, "AWS_CONTAINER_AUTHORIZATION_TOKEN")))
        response = yield HttpRequest("GET", url, headers)
        return _credentials(_text(response, url), url)
    base = "/latest/meta-data/iam/security-credentials/"
    role = yield from _instance_metadata(base)
    text = yield from _instance_metadata(base + quote(role.split("\n")[0].strip(), safe=""))
    return _credentials(text, _instance_url())


def _credentials(text: str, url: str) -> AwsCredentials:
    try:
        return msgspec.json.decode(text, type=AwsCredentials)
    except msgspec.MsgspecError:
        raise AuthorizationFailed(f"{describe(url)} has no credentials of a role") from None


def _instance_url() -> str:
    return os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or "http://169.254.169.254"


def _instance_metadata(path: str) -> Flow[str]:
    """Read metadata of the instance, version 2 only."""
    base = _instance_url().rstrip("/")
    response = yield HttpRequest(
        "PUT", f"{base}/latest/api/token", (("X-aws-ec2-metadata-token-ttl-seconds", "60"),), b""
    )
    session = _check(_text(response, base), "the metadata of the instance")
    url = f"{base}{path}"
    response = yield HttpRequest("GET", url, (("X-aws-ec2-metadata-token", session),))
    return _text(response, url)


#: Where agents of ECS and EKS give credentials of a container.
_CONTAINER_HOSTS = frozenset({"169.254.170.2", "169.254.170.23", "fd00:ec2::23"})


def _container_url() -> str | None:
    """Where the credentials of the container are. Raises AuthorizationFailed if they would go over the network unencrypted."""
    if relative := os.environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        return f"http://169.254.170.2{relative if relative.startswith('/') else f'/{relative}'}"
    url = os.environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    if not url:
        return None
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "https" and not is_loopback_name(host) and host not in _CONTAINER_HOSTS:
        raise AuthorizationFailed("AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor on this machine")
    return url


def _suffix(region: str) -> str:
    return ".cn" if region.startswith("cn-") else ""


# ---------------------------------------------------------------- parts


def _variable(name: str, need: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise AuthorizationFailed(f"The variable {name} is not set, which has {need}")
    return value


def _check(token: str, where: str) -> str:
    token = token.strip()
    if not token or len(token) > MAX_TOKEN or _TOKEN.fullmatch(token) is None:
        raise AuthorizationFailed(f"There is no usable token from {where}")
    return token


def _text(response: HttpResponse, url: str) -> str:
    if response.status != 200:
        raise AuthorizationFailed(f"{describe(url)} gave no token: HTTP status {response.status}")
    return response.body.decode("utf-8", "replace")


def _member(response: HttpResponse, name: str, url: str) -> str:
    try:
        answer: Any = msgspec.json.decode(_text(response, url))
    except msgspec.MsgspecError:
        answer = None
    value = answer.get(name) if isinstance(answer, Mapping) else None
    return value if isinstance(value, str) else ""
