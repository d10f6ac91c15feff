"""The story of confluent-kafka, told to a running server: BROKER is its address."""
import os
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

BROKER, REPLICAS = os.environ["BROKER"], int(os.environ["REPLICAS"])
PATIENCE_S = 150


def same(what, got, want):
    assert got == want, f"{what}: {got!r}, want {want!r}"


def done(futures):
    """Waits for the results of an administrative call."""
    return {key: future.result(PATIENCE_S) for key, future in futures.items()}


def administer(admin):
    done(admin.create_topics([NewTopic("story", 2, REPLICAS, config={"segment.bytes": "1048576", "compression.type": "zstd"})]))
    # The partitions are there when the answer is.
    same("partitions", len(admin.list_topics("story", timeout=PATIENCE_S).topics["story"].partitions), 2)
    settings = described(admin)
    same("a setting without effect", settings["segment.bytes"], "1048576")
    done(admin.alter_configs([ConfigResource("topic", "story", set_config={**settings, "retention.ms": "3600000"})]))
    same("all settings", described(admin), {**settings, "retention.ms": "3600000"})
    done(admin.create_partitions([NewPartitions("story", 3)]))
    same("partitions", len(admin.list_topics("story", timeout=PATIENCE_S).topics["story"].partitions), 3)


def described(admin):
    (configs,) = done(admin.describe_configs([ConfigResource("topic", "story")])).values()
    return {name: entry.value for name, entry in configs.items()}


def produce():
    failed = []
    producer = Producer({"bootstrap.servers": BROKER, "enable.idempotence": True, "compression.type": "lz4"})
    for i in range(20):
        producer.produce("story", key=b"key", value=b"value %d" % i, headers=[("tag", b"paid")], partition=0,
                         timestamp=1_700_000_000_000 + i, on_delivery=lambda err, _: failed.append(err) if err else None)
    same("records not sent", producer.flush(PATIENCE_S), 0)
    same("failures", failed, [])


def consume(count):
    """Reads so many records in a group, and commits."""
    consumer = Consumer({"bootstrap.servers": BROKER, "group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe(["story"])
    got, end = [], time.monotonic() + PATIENCE_S
    while len(got) < count:
        assert time.monotonic() < end, f"{len(got)} records, want {count}"
        record = consumer.poll(1)
        if record is not None and record.error() is None:
            got.append((record.offset(), record.key(), record.value(), record.headers(), record.timestamp()[1]))
            consumer.commit(record, asynchronous=False)
    consumer.close()
    return got


def want(first, end):
    return [(i, b"key", b"value %d" % i, [("tag", b"paid")], 1_700_000_000_000 + i) for i in range(first, end)]


def main():
    admin = AdminClient({"bootstrap.servers": BROKER})
    administer(admin)
    produce()
    same("records", consume(12), want(0, 12))
    same("the rest, after a commit", consume(8), want(12, 20))
    seeker = Consumer({"bootstrap.servers": BROKER, "group.id": "readers"})
    same("the committed offset", seeker.committed([TopicPartition("story", 0)], timeout=PATIENCE_S)[0].offset, 20)
    (found,) = seeker.offsets_for_times([TopicPartition("story", 0, 1_700_000_000_005)], timeout=PATIENCE_S)
    same("an offset by its time", found.offset, 5)
    seeker.close()
    same("groups", [group.id for group in admin.list_groups(timeout=PATIENCE_S)], ["readers"])
    done(admin.delete_topics(["story"], operation_timeout=PATIENCE_S))
    same("topics", "story" in admin.list_topics(timeout=PATIENCE_S).topics, False)
    print("confluent-kafka: ok")


main()
