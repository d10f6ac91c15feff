#include "client.h"

int replicas(void) { return atoi(getenv("REPLICAS")); }

rd_kafka_t *client(const char *group, const char *settings[]) {
  char problem[512];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  const char *all[] = {"bootstrap.servers", getenv("BROKER"), NULL};
  const char *producers[] = {"linger.ms", "1", NULL};
  const char *consumers[] = {"group.id", group,
                             "enable.auto.commit", "false",
                             "heartbeat.interval.ms", "100",
                             "fetch.wait.max.ms", "100",
                             "auto.offset.reset", "earliest", NULL};
  const char **lists[] = {all, group ? consumers : producers, settings};
  for (int list = 0; list < 3; list++)
    for (const char **s = lists[list]; s && *s; s += 2)
      CHECK(rd_kafka_conf_set(conf, s[0], s[1], problem, sizeof problem) == RD_KAFKA_CONF_OK, "%s", problem);
  rd_kafka_t *rk = rd_kafka_new(group ? RD_KAFKA_CONSUMER : RD_KAFKA_PRODUCER, conf, problem, sizeof problem);
  CHECK(rk, "%s", problem);
  if (group)
    MUST(rd_kafka_poll_set_consumer(rk));
  return rk;
}

void leave(rd_kafka_t *rk) {
  if (rd_kafka_type(rk) == RD_KAFKA_CONSUMER)
    MUST(rd_kafka_consumer_close(rk));
  rd_kafka_destroy(rk);
}

void send_numbered(const char *topic, int partition, int from, int to, const char *tag, const char *codec, int64_t start) {
  const char *settings[] = {"compression.codec", codec, "enable.idempotence", "true", NULL};
  rd_kafka_t *producer = client(NULL, settings);
  for (int i = from; i < to; i++) {
    char value[32];
    int length = snprintf(value, sizeof value, "value %d", i);
    rd_kafka_headers_t *headers = rd_kafka_headers_new(1);
    if (tag)
      MUST(rd_kafka_header_add(headers, "tag", -1, tag, -1));
    MUST(rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition), RD_KAFKA_V_VALUE(value, length),
                           RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_HEADERS(headers),
                           RD_KAFKA_V_TIMESTAMP(start ? start + (int64_t)(i - from) * 1000 : 0), RD_KAFKA_V_END));
  }
  MUST(rd_kafka_flush(producer, PATIENCE));
  leave(producer);
}

int64_t read_numbered(rd_kafka_t *consumer, int from, int to) {
  int64_t offset = -1;
  for (int i = from; i < to; i++) {
    rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, PATIENCE);
    CHECK(message, "nothing came, want value %d", i);
    CHECK(!message->err, "want value %d: %s", i, rd_kafka_message_errstr(message));
    char value[32];
    int length = snprintf(value, sizeof value, "value %d", i);
    CHECK(message->len == (size_t)length && !memcmp(message->payload, value, length), "\"%.*s\" at offset %" PRId64 ", want \"%s\"",
          (int)message->len, (char *)message->payload, message->offset, value);
    CHECK(message->offset > offset, "offset %" PRId64 " after %" PRId64, message->offset, offset);
    offset = message->offset;
    rd_kafka_message_destroy(message);
  }
  return offset;
}

rd_kafka_t *subscribed(const char *group, const char *topic) {
  rd_kafka_t *consumer = client(group, NULL);
  rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(topics, topic, RD_KAFKA_PARTITION_UA);
  MUST(rd_kafka_subscribe(consumer, topics));
  rd_kafka_topic_partition_list_destroy(topics);
  return consumer;
}

rd_kafka_event_t *answer(rd_kafka_queue_t *queue, rd_kafka_event_type_t type) {
  for (;;) {
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, PATIENCE);
    CHECK(event, "no answer");
    if (rd_kafka_event_type(event) == type) {
      CHECK(!rd_kafka_event_error(event), "%s", rd_kafka_event_error_string(event));
      return event;
    }
    rd_kafka_event_destroy(event);
  }
}

void create(const char *topic, int partitions, const char *name1, const char *value1, const char *name2, const char *value2) {
  char problem[512];
  rd_kafka_t *rk = client(NULL, NULL);
  rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
  rd_kafka_NewTopic_t *wanted = rd_kafka_NewTopic_new(topic, partitions, replicas(), problem, sizeof problem);
  CHECK(wanted, "%s", problem);
  if (name1)
    MUST(rd_kafka_NewTopic_set_config(wanted, name1, value1));
  if (name2)
    MUST(rd_kafka_NewTopic_set_config(wanted, name2, value2));
  rd_kafka_CreateTopics(rk, &wanted, 1, NULL, queue);
  rd_kafka_event_t *event = answer(queue, RD_KAFKA_EVENT_CREATETOPICS_RESULT);
  size_t count;
  const rd_kafka_topic_result_t **results = rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &count);
  CHECK(count == 1 && !rd_kafka_topic_result_error(results[0]), "%s: %s", topic, rd_kafka_topic_result_error_string(results[0]));
  rd_kafka_event_destroy(event);
  rd_kafka_NewTopic_destroy(wanted);
  rd_kafka_queue_destroy(queue);
  leave(rk);
}
