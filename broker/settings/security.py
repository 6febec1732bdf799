"""Broker settings of authorization, delegation tokens and the encryption of passwords."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast, NotNull
from odradek.broker.settings.setting import CLASS, INT, LONG, LOW, MEDIUM, PASSWORD, PER_BROKER, STRING, Setting

# fmt: off
SECURITY_SETTINGS = (
    Setting("authorizer.class.name", STRING, "", LOW, valid=NotNull(), protects=True,
            doc="The class that authorizes requests; Odradek loads no Java classes."),
    Setting("delegation.token.expiry.check.interval.ms", LONG, 3600000, LOW, valid=AtLeast(1),
            doc="How often expired delegation tokens are removed."),
    Setting("delegation.token.expiry.time.ms", LONG, 86400000, MEDIUM, valid=AtLeast(1),
            doc="How long a delegation token is valid before it must be renewed."),
    Setting("delegation.token.master.key", PASSWORD, None, MEDIUM, protects=True,
            doc="The older name of delegation.token.secret.key."),
    Setting("delegation.token.max.lifetime.ms", LONG, 604800000, MEDIUM, valid=AtLeast(1),
            doc="The maximum lifetime of a delegation token with renewals."),
    Setting("delegation.token.secret.key", PASSWORD, None, MEDIUM, protects=True,
            doc="The secret that signs delegation tokens; all nodes need the same one."),
    Setting("password.encoder.cipher.algorithm", STRING, "AES/CBC/PKCS5Padding", LOW,
            doc="The cipher for passwords in dynamic settings."),
    Setting("password.encoder.iterations", INT, 4096, LOW, valid=AtLeast(1024),
            doc="The number of key derivation rounds for passwords in dynamic settings."),
    Setting("password.encoder.key.length", INT, 128, LOW, valid=AtLeast(8),
            doc="The key length in bits for passwords in dynamic settings."),
    Setting("password.encoder.keyfactory.algorithm", STRING, None, LOW,
            doc="The key derivation algorithm for passwords in dynamic settings."),
    Setting("password.encoder.old.secret", PASSWORD, None, MEDIUM, protects=True,
            doc="The previous password.encoder.secret, while it is being replaced."),
    Setting("password.encoder.secret", PASSWORD, None, MEDIUM, protects=True,
            doc="The secret that encrypts passwords in dynamic settings."),
    Setting("principal.builder.class", CLASS,
            "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", MEDIUM,
            update_mode=PER_BROKER, protects=True,
            doc="The class that maps an authenticated connection to a principal; Odradek loads no Java classes."),
    Setting("security.providers", STRING, None, LOW, protects=True,
            doc="The Java security providers to install; Odradek has none."),
)
# fmt: on
