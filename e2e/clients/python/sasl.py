"""Clients of Python authenticate by each mechanism to a running server, and kafka-python manages access lists: BROKER is its address,
CERTIFICATES the folder with ca.pem, SECRET the admin token, VIEWER a token that may not create topics, EXPIRED one that has expired, CLERK the password of the
user clerk, who has no right."""
import os
import time

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as ConfluentTopic
from kafka.admin import (ACL, ACLFilter, ACLOperation, ACLPermissionType, ACLResourcePatternType, KafkaAdminClient, NewTopic, ResourcePattern,
                         ResourcePatternFilter, ResourceType)
from kafka.errors import AuthenticationFailedError, ClusterAuthorizationFailedError
from kafka.errors import KafkaError as KafkaPythonError
from kafka.errors import NoBrokersAvailable, TopicAuthorizationFailedError
from kafka.oauth import AbstractTokenProvider

BROKER, SECRET, VIEWER, EXPIRED, CLERK = (os.environ[name] for name in ("BROKER", "SECRET", "VIEWER", "EXPIRED", "CLERK"))
CA = os.path.join(os.environ["CERTIFICATES"], "ca.pem")


def confluent(mechanism, user, secret):
    """Returns the code with which the creation of a topic, or else the authentication, is refused to librdkafka; None if nothing is."""
    refusals = []
    admin = AdminClient({
        "bootstrap.servers": BROKER, "security.protocol": "SASL_SSL", "ssl.ca.location": CA, "sasl.mechanism": mechanism,
        "sasl.username": user, "sasl.password": secret, "log_level": 0, "error_cb": refusals.append,
        "oauth_cb": lambda _: (secret, time.time() + 3600),
    })
    created = admin.create_topics([ConfluentTopic("could-be", 1, 1)], validate_only=True, operation_timeout=60)["could-be"]
    while not created.done():
        admin.poll(0.1)  # calls oauth_cb and error_cb
        refused = [error.name() for error in refusals if error.code() == KafkaError._AUTHENTICATION]
        if refused:
            return refused[0]
    error = created.exception()
    return error and error.args[0].name()


class Token(AbstractTokenProvider):
    """A token of OAUTHBEARER."""

    def __init__(self, secret):
        self.secret = secret

    def token(self):
        return self.secret


def settings(user, mechanism, secret, patience_ms=60_000):
    """Returns the settings with which a client of kafka-python authenticates."""
    return {"bootstrap_servers": BROKER, "security_protocol": "SASL_SSL", "ssl_cafile": CA, "sasl_mechanism": mechanism, "sasl_plain_username": user,
            "sasl_plain_password": secret, "sasl_oauth_token_provider": Token(secret), "api_version_auto_timeout_ms": patience_ms}


def kafka_python(mechanism, user, secret):
    """Returns the error with which the creation of a topic is refused; None if nothing is, "no connection" if the authentication is: kafka-python logs
    the reason, and reports that it knows no broker, or for OAUTHBEARER an answer that it does not understand."""
    try:
        admin = KafkaAdminClient(**settings(user, mechanism, secret, 2000 if secret in (EXPIRED, "wrong") else 60_000), request_timeout_ms=60_000)
    except (NoBrokersAvailable, AuthenticationFailedError):
        return "no connection"
    try:
        admin.create_topics([NewTopic("could-be", 1, 1)], validate_only=True)
    except KafkaPythonError as error:
        return error.__class__.__name__
    finally:
        admin.close()
    return None


def refused(error, call, *args):
    try:
        call(*args)
    except error:
        return
    raise AssertionError(f"{call}{args}: want {error.__name__}")


def access_lists():
    admin = KafkaAdminClient(**settings("admin", "PLAIN", SECRET), request_timeout_ms=60_000)
    clerk = KafkaAdminClient(**settings("clerk", "SCRAM-SHA-256", CLERK), request_timeout_ms=60_000)
    topics, closed = [ResourcePattern(ResourceType.TOPIC, *of)
                      for of in (("python", ACLResourcePatternType.PREFIXED), ("python-closed", ACLResourcePatternType.LITERAL))]
    acls = [ACL("User:clerk", "*", ACLOperation.ALL, ACLPermissionType.ALLOW, topics), ACL("User:clerk", "*", ACLOperation.CREATE, ACLPermissionType.DENY, closed)]
    anything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    every = ACLFilter("User:clerk", None, ACLOperation.ANY, ACLPermissionType.ANY, anything)
    refused(TopicAuthorizationFailedError, clerk.create_topics, [NewTopic("python", 1, 1)])
    failed = clerk.create_acls(acls)["failed"]
    assert [error for _, error in failed] == [ClusterAuthorizationFailedError] * 2, failed
    refused(ClusterAuthorizationFailedError, clerk.describe_acls, every)
    assert clerk.delete_acls([every])[0][2] is ClusterAuthorizationFailedError
    assert admin.create_acls(acls)["failed"] == []
    clerk.create_topics([NewTopic("python", 1, 1)])
    refused(TopicAuthorizationFailedError, clerk.create_topics, [NewTopic("python-closed", 1, 1)])
    assert clerk.list_topics() == ["python"]
    clerk.delete_topics(["python"])
    described, error = admin.describe_acls(every)
    assert error.errno == 0 and set(described) == set(acls), (described, error)
    assert len(admin.delete_acls([every])[0][1]) == 2
    assert admin.describe_acls(every)[0] == []
    admin.close()
    clerk.close()


DENIED, UNKNOWN = ("TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationFailedError"), ("_AUTHENTICATION", "no connection")
for user, secret, want in (("admin", SECRET, (None, None)), ("viewer", VIEWER, DENIED), ("admin", "wrong", UNKNOWN), ("late", EXPIRED, UNKNOWN)):
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"):
        got = confluent(mechanism, user, secret), kafka_python(mechanism, user, secret)
        assert got == want, (mechanism, user, got, want)
access_lists()
