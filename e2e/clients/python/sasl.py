"""Clients of Python authenticate by each mechanism to a running server: BROKER is its address, SECRET the admin token."""
import os
import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer
from kafka.errors import KafkaError

BROKER, SECRET = os.environ["BROKER"], os.environ["SECRET"]


def confluent(mechanism, secret):
    admin = AdminClient({
        "bootstrap.servers": BROKER, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
        "sasl.username": "admin", "sasl.password": secret, "log_level": 0,
        "oauth_cb": lambda _: (secret, time.time() + 3600),
    })
    admin.poll(0)  # calls oauth_cb
    admin.list_topics(timeout=60 if secret == SECRET else 2)


def kafka_python(mechanism, secret):
    KafkaConsumer(
        bootstrap_servers=BROKER, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism,
        sasl_plain_username="admin", sasl_plain_password=secret, api_version_auto_timeout_ms=60_000 if secret == SECRET else 2000,
    ).topics()


confluent("OAUTHBEARER", SECRET)
for client in (confluent, kafka_python):
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        client(mechanism, SECRET)
    try:
        client("SCRAM-SHA-256", "wrong")
    except (KafkaException, KafkaError):
        continue
    raise AssertionError(f"{client.__name__}: a wrong secret is accepted")
