"""The story of kafka-python, told to a running server: BROKER is its address."""
import os

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic

BROKER, REPLICAS = os.environ["BROKER"], int(os.environ["REPLICAS"])
PATIENCE_MS = 150_000
# By default a client takes a broker that stands still for two seconds for none.
SERVER = {"bootstrap_servers": BROKER, "api_version_auto_timeout_ms": PATIENCE_MS}


def same(what, got, want):
    assert got == want, f"{what}: {got!r}, want {want!r}"


def administer(admin):
    topic = NewTopic("story", 2, REPLICAS, topic_configs={"segment.bytes": "1048576", "compression.type": "gzip"})
    admin.create_topics([topic])
    # The partitions are there when the answer is.
    same("partitions", len(admin.describe_topics(["story"])[0]["partitions"]), 2)
    resource = ConfigResource(ConfigResourceType.TOPIC, "story")
    settings = described(admin, resource)
    same("a setting without effect", settings["segment.bytes"], "1048576")
    # kafka-python sends all back, those that are not set too.
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "story", {**settings, "retention.ms": "3600000"})])
    same("an altered setting", described(admin, resource)["retention.ms"], "3600000")
    same("the others", described(admin, resource), {**settings, "retention.ms": "3600000"})
    admin.create_partitions({"story": NewPartitions(3)})
    same("partitions", len(admin.describe_topics(["story"])[0]["partitions"]), 3)


def described(admin, resource):
    response = admin.describe_configs([resource])[0].resources[0]
    same("describe configs", response[0], 0)
    return {config[0]: config[1] for config in response[4]}


def produce():
    producer = KafkaProducer(**SERVER, acks="all", retries=1000, max_in_flight_requests_per_connection=1)
    for i in range(20):
        sent = producer.send("story", key=b"key", value=b"value %d" % i, headers=[("tag", b"paid")], partition=0, timestamp_ms=1_700_000_000_000 + i)
    same("the last offset", sent.get(timeout=PATIENCE_MS / 1000).offset, 19)
    producer.send("story", key=b"deleted", value=None, partition=1).get(timeout=PATIENCE_MS / 1000)
    producer.close()


def consume(count):
    """Reads so many records of partition 0 in a group, and commits."""
    consumer = KafkaConsumer("story", **SERVER, group_id="readers", auto_offset_reset="earliest",
                             enable_auto_commit=False, consumer_timeout_ms=PATIENCE_MS, max_poll_records=1)
    got = []
    for record in consumer:
        if record.partition != 0:
            continue
        got.append((record.offset, record.key, record.value, record.headers, record.timestamp))
        if len(got) == count:
            break
    consumer.commit()
    consumer.close()
    return got


def want(first, end):
    return [(i, b"key", b"value %d" % i, [("tag", b"paid")], 1_700_000_000_000 + i) for i in range(first, end)]


def main():
    admin = KafkaAdminClient(**SERVER, request_timeout_ms=PATIENCE_MS)
    administer(admin)
    produce()
    same("records", consume(12), want(0, 12))
    same("the rest, after a commit", consume(8), want(12, 20))
    same("the committed offset", admin.list_consumer_group_offsets("readers")[TopicPartition("story", 0)].offset, 20)
    same("groups", ("readers", "consumer") in admin.list_consumer_groups(), True)
    seeker = KafkaConsumer(**SERVER)
    found = seeker.offsets_for_times({TopicPartition("story", 0): 1_700_000_000_005})
    same("an offset by its time", found[TopicPartition("story", 0)].offset, 5)
    seeker.close()
    admin.delete_consumer_groups(["readers"])
    admin.delete_topics(["story"])
    same("topics", "story" in admin.list_topics(), False)
    admin.close()
    print("kafka-python: ok")


main()
