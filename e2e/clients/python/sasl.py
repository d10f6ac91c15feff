"""Clients of Python authenticate by each mechanism to a running server, and kafka-python manages access lists: BROKER is its address,
SECRET the admin token, CLERK the password of the user clerk, who has no right."""
import os
import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer
from kafka.admin import (ACL, ACLFilter, ACLOperation, ACLPermissionType, ACLResourcePatternType, KafkaAdminClient, NewTopic, ResourcePattern,
                         ResourcePatternFilter, ResourceType)
from kafka.errors import ClusterAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError

BROKER, SECRET, CLERK = os.environ["BROKER"], os.environ["SECRET"], os.environ["CLERK"]


def confluent(mechanism, secret):
    admin = AdminClient({
        "bootstrap.servers": BROKER, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
        "sasl.username": "admin", "sasl.password": secret, "log_level": 0,
        "oauth_cb": lambda _: (secret, time.time() + 3600),
    })
    admin.poll(0)  # calls oauth_cb
    admin.list_topics(timeout=60 if secret == SECRET else 2)


def settings(user, mechanism, secret, patience_ms=60_000):
    """Returns the settings with which a client of kafka-python authenticates."""
    return {"bootstrap_servers": BROKER, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, "sasl_plain_username": user,
            "sasl_plain_password": secret, "api_version_auto_timeout_ms": patience_ms}


def kafka_python(mechanism, secret):
    KafkaConsumer(**settings("admin", mechanism, secret, 60_000 if secret == SECRET else 2000)).topics()


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


confluent("OAUTHBEARER", SECRET)
for client in (confluent, kafka_python):
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        client(mechanism, SECRET)
    try:
        client("SCRAM-SHA-256", "wrong")
    except (KafkaException, KafkaError):
        continue
    raise AssertionError(f"{client.__name__}: a wrong secret is accepted")
access_lists()
