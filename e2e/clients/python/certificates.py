"""Clients of Python show certificates to a running server: BROKER is its address, CERTIFICATES the folder with them."""
import os
import ssl

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as PythonTopic
from kafka.errors import KafkaError

BROKER, FOLDER = os.environ["BROKER"], os.environ["CERTIFICATES"]
TIMEOUT = 60


def path(file):
    return os.path.join(FOLDER, file)


def confluent(name):
    settings = {"bootstrap.servers": BROKER, "security.protocol": "SSL", "ssl.ca.location": path("ca.pem"), "log_level": 0}
    if name:
        settings |= {"ssl.certificate.location": path(name + ".pem"), "ssl.key.location": path(name + ".key")}
    return AdminClient(settings)


def kafka_python(name):
    settings = {"bootstrap_servers": BROKER, "security_protocol": "SSL", "ssl_cafile": path("ca.pem")}
    if name:
        settings |= {"ssl_certfile": path(name + ".pem"), "ssl_keyfile": path(name + ".key")}
    return settings


def create(name, topic):
    admin = confluent(name)  # it must outlive its future
    admin.create_topics([NewTopic(topic, 1)])[topic].result(TIMEOUT)


create("till", "of-confluent")
try:
    create("stranger", "of-a-stranger")
    raise AssertionError("confluent-kafka: a certificate without a grant creates a topic")
except KafkaException as refused:
    assert refused.args[0].name() in ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"), refused
try:
    confluent(None).list_topics(timeout=2)
    raise AssertionError("confluent-kafka: without a certificate topics are listed")
except KafkaException:
    pass

KafkaAdminClient(**kafka_python("till")).create_topics([PythonTopic("of-python", 1, 1)])
assert "of-python" in KafkaConsumer(**kafka_python("till")).topics()
assert KafkaConsumer(**kafka_python("stranger")).topics() == set()
try:
    KafkaConsumer(**kafka_python(None), api_version_auto_timeout_ms=2000).topics()
    raise AssertionError("kafka-python: without a certificate topics are listed")
except (KafkaError, ssl.SSLError):
    pass
