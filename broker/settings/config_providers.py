"""Variables in settings: ${PROVIDER:PATH:KEY} stands for a value from a file, a directory or the environment.

    config.providers=env,file,dir
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    config.providers.env.param.allowlist.pattern=ODRADEK_.*       only these names, matched as a whole
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.file.param.allowed.paths=/run/secrets        only files below these
    config.providers.dir.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider

    (A) ${env:NAME} is an environment variable; ${file:/PATH:KEY} a value in a property file in UTF-8; ${dir:/PATH:NAME}
        the content of a file, with the newline at its end if there is one.
    (B) A value may have several variables. What a provider yields is not searched for variables again.
    (C) A variable stays as it is if its provider, file name, key or environment variable does not exist, or is not
        allowed. A property file that cannot be read is an error, as is a path for the environment.
    (D) A provider without a class is ignored. Another class than these three is an error, which names it.
    (E) Names in config.providers are not trimmed. The settings of providers have no variables.
    (F) What a provider yields is a secret (`Provided`).

Source: Kafka's `ConfigTransformer`, `AbstractConfig.resolveConfigVariables`, `AllowedPaths` (KIP-297, KIP-421).
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from odradek.broker.settings.properties import parse_property_text
from odradek.broker.settings.provided import NOTHING, Provided
from odradek.broker.settings.values import ConfigError
from odradek.storage.files import Files

PROVIDERS = "config.providers"
PACKAGE = "org.apache.kafka.common.config.provider."
ALLOWED_NAMES, ALLOWED_PATHS = "allowlist.pattern", "allowed.paths"
_VARIABLE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}", re.DOTALL)


class Provider(Protocol):
    """Returns the values of those keys that it has. Raises ConfigError, which never shows a value."""

    def values(self, path: str, keys: set[str]) -> Mapping[str, str]: ...


class EnvironmentProvider:
    def __init__(self, environment: Mapping[str, str], allowed: re.Pattern[str] | None) -> None:
        """`allowed`: None allows every name."""
        self._environment = environment
        self._allowed = allowed

    def values(self, path: str, keys: set[str]) -> Mapping[str, str]:
        """See `Provider`."""
        if path:
            raise ConfigError(PROVIDERS, f"a variable of the environment has no path, but one has {path}")
        known = keys & self._environment.keys()
        return {key: self._environment[key] for key in known if self._allowed is None or self._allowed.fullmatch(key)}


class FileProvider:
    """The values of property files. `allowed`: the directories and files that may be read; None allows all."""

    def __init__(self, files: Files, allowed: list[str] | None) -> None:
        self._files = files
        self._allowed = allowed

    def values(self, path: str, keys: set[str]) -> Mapping[str, str]:
        """See `Provider`."""
        if not path or not _is_allowed(path, self._allowed):
            return {}
        try:
            found = parse_property_text(self._files.read_file(path).decode("utf-8", "replace"))
        except OSError as error:
            raise ConfigError(PROVIDERS, f"cannot read {path}: {error.strerror}") from None
        except ValueError:
            raise ConfigError(PROVIDERS, f"{path} is not a property file: a \\u escape is malformed") from None
        return {key: found[key] for key in keys & found.keys()}


class DirectoryProvider:
    """The contents of files in a directory. `allowed` as for `FileProvider`."""

    def __init__(self, files: Files, allowed: list[str] | None) -> None:
        self._files = files
        self._allowed = allowed

    def values(self, path: str, keys: set[str]) -> Mapping[str, str]:
        """See `Provider`."""
        if not path or not _is_allowed(path, self._allowed) or not self._files.is_directory(path):
            return {}
        return {key: self._content(f"{path}/{key}") for key in keys if self._has_file(path, key)}

    def _has_file(self, path: str, name: str) -> bool:
        place = f"{path}/{name}"
        return bool(name) and "/" not in name and self._files.exists(place) and not self._files.is_directory(place)

    def _content(self, path: str) -> str:
        try:
            return self._files.read_file(path).decode("utf-8", "replace")
        except OSError as error:
            raise ConfigError(PROVIDERS, f"cannot read {path}: {error.strerror}") from None


class Resolved(NamedTuple):
    """Settings without their variables, and what to hide of them."""

    texts: dict[str, str]
    provided: Provided


def resolve(texts: Mapping[str, str], files: Files, environment: Mapping[str, str]) -> Resolved:
    """Replaces the variables in settings. Raises ConfigError."""
    providers = _providers(texts, files, environment)
    if not providers:
        return Resolved(dict(texts), NOTHING)
    found = _values(texts, providers)
    resolved, names, unresolved = {}, set(), set()

    def value(variable: re.Match[str]) -> str:
        return found.get(_key(variable), variable[0])

    for name, text in texts.items():
        variables = [_key(variable) for variable in _VARIABLE.finditer(text)]
        resolved[name] = _VARIABLE.sub(value, text)
        if any(each in found for each in variables):
            names.add(name)
        if any(each[0] in providers and each not in found for each in variables):
            unresolved.add(name)
    secrets = [*found.values(), *(resolved[name] for name in names)]
    return Resolved(resolved, Provided(frozenset(names), sorted(unresolved), secrets))


_Key = tuple[str, str, str]
"""(provider, path, key)"""


def _key(variable: re.Match[str]) -> _Key:
    return variable[1], variable[2] or "", variable[3]


def _values(texts: Mapping[str, str], providers: Mapping[str, Provider]) -> dict[_Key, str]:
    asked: dict[tuple[str, str], set[str]] = {}
    for text in texts.values():
        for provider, path, key in map(_key, _VARIABLE.finditer(text)):
            if provider in providers:
                asked.setdefault((provider, path), set()).add(key)
    return {
        (provider, path, key): value
        for (provider, path), keys in asked.items()
        for key, value in providers[provider].values(path, keys).items()
    }


def _providers(texts: Mapping[str, str], files: Files, environment: Mapping[str, str]) -> dict[str, Provider]:
    def environment_provider(prefix: str) -> Provider:
        return EnvironmentProvider(environment, _allowed_names(texts, prefix))

    kinds: dict[str, Callable[[str], Provider]] = {
        f"{PACKAGE}EnvVarConfigProvider": environment_provider,
        f"{PACKAGE}FileConfigProvider": lambda prefix: FileProvider(files, _allowed_paths(texts, prefix, files)),
        f"{PACKAGE}DirectoryConfigProvider": lambda prefix: DirectoryProvider(
            files, _allowed_paths(texts, prefix, files)
        ),
    }
    found: dict[str, Provider] = {}
    for provider in texts.get(PROVIDERS, "").split(","):
        name = f"{PROVIDERS}.{provider}.class"
        class_name = texts.get(name)
        if not provider or class_name is None:
            continue
        if class_name not in kinds:
            raise ConfigError(name, f"{name}={class_name}: the providers are {', '.join(kinds)}")
        found[provider] = kinds[class_name](f"{PROVIDERS}.{provider}.param.")
    return found


def _allowed_names(texts: Mapping[str, str], prefix: str) -> re.Pattern[str] | None:
    name = f"{prefix}{ALLOWED_NAMES}"
    if name not in texts:
        return None
    try:
        return re.compile(texts[name])
    except re.error as error:
        raise ConfigError(name, f"{name}={texts[name]} is not a regular expression: {error}") from None


def _allowed_paths(texts: Mapping[str, str], prefix: str, files: Files) -> list[str] | None:
    name = f"{prefix}{ALLOWED_PATHS}"
    if not texts.get(name):
        return None
    for path in texts[name].split(","):
        if not path.startswith("/"):
            raise ConfigError(name, f"{name}: {path} is not absolute")
        if not files.exists(path):
            raise ConfigError(name, f"{name}: {path} does not exist")
    return [os.path.normpath(path) for path in texts[name].split(",")]


def _is_allowed(path: str, allowed: list[str] | None) -> bool:
    """Whether the path, without . and .., is one of those allowed or below it."""
    if allowed is None:
        return True
    normal = os.path.normpath(path)
    return any(normal == each or normal.startswith(f"{each.rstrip('/')}/") for each in allowed)
