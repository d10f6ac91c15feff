/* A transactional producer of librdkafka: what it commits is read by consumers of committed records,
 * with the offsets that it commits, and what it aborts is not. */
#include "client.h"

#define SUCCEED(call)                                                          \
  do {                                                                         \
    rd_kafka_error_t *error_ = (call);                                         \
    if (error_)                                                                \
      FAIL(#call ": %s", rd_kafka_error_string(error_));                       \
  } while (0)

static rd_kafka_t *transactional(const char *id) {
  const char *settings[] = {"transactional.id", id, NULL};
  rd_kafka_t *producer = client(NULL, settings);
  SUCCEED(rd_kafka_init_transactions(producer, PATIENCE));
  return producer;
}

/* produce sends "value from" to "value to-1", to partition 0, in an open transaction. */
static void produce(rd_kafka_t *producer, int from, int to) {
  for (int i = from; i < to; i++) {
    char value[32];
    int length = snprintf(value, sizeof value, "value %d", i);
    MUST(rd_kafka_producev(producer, RD_KAFKA_V_TOPIC("transactions"), RD_KAFKA_V_PARTITION(0), RD_KAFKA_V_VALUE(value, length),
                           RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END));
  }
  MUST(rd_kafka_flush(producer, PATIENCE));
}

/* committed returns the offset of a group in partition 0. */
static int64_t committed(const char *group) {
  rd_kafka_t *rk = client(group, NULL);
  rd_kafka_topic_partition_list_t *places = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(places, "transactions", 0);
  MUST(rd_kafka_committed(rk, places, PATIENCE));
  int64_t offset = places->elems[0].offset;
  rd_kafka_topic_partition_list_destroy(places);
  leave(rk);
  return offset;
}

static void commit_offset(rd_kafka_t *producer, rd_kafka_t *consumer, int64_t offset) {
  rd_kafka_topic_partition_list_t *places = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(places, "transactions", 0)->offset = offset;
  rd_kafka_consumer_group_metadata_t *group = rd_kafka_consumer_group_metadata(consumer);
  SUCCEED(rd_kafka_send_offsets_to_transaction(producer, places, group, PATIENCE));
  rd_kafka_consumer_group_metadata_destroy(group);
  rd_kafka_topic_partition_list_destroy(places);
}

int main(void) {
  create("transactions", 2, NULL, NULL, NULL, NULL);
  rd_kafka_t *first = transactional("till");
  SUCCEED(rd_kafka_begin_transaction(first));
  produce(first, 0, 10);
  SUCCEED(rd_kafka_commit_transaction(first, PATIENCE));
  SUCCEED(rd_kafka_begin_transaction(first));
  produce(first, 100, 110);
  SUCCEED(rd_kafka_abort_transaction(first, PATIENCE));

  /* The reader is of committed records, as is librdkafka's default. */
  rd_kafka_t *reader = subscribed("readers", "transactions");
  SUCCEED(rd_kafka_begin_transaction(first));
  produce(first, 10, 20);
  read_numbered(reader, 0, 10);
  commit_offset(first, reader, 10);
  SUCCEED(rd_kafka_commit_transaction(first, PATIENCE));
  read_numbered(reader, 10, 20);
  CHECK(committed("readers") == 10, "%" PRId64, committed("readers"));

  SUCCEED(rd_kafka_begin_transaction(first));
  commit_offset(first, reader, 15);
  SUCCEED(rd_kafka_abort_transaction(first, PATIENCE));
  CHECK(committed("readers") == 10, "%" PRId64, committed("readers"));

  /* A second producer fences the first. */
  SUCCEED(rd_kafka_begin_transaction(first));
  produce(first, 200, 210);
  rd_kafka_t *second = transactional("till");
  rd_kafka_error_t *fenced = rd_kafka_commit_transaction(first, PATIENCE);
  CHECK(fenced && rd_kafka_error_is_fatal(fenced), "%s", fenced ? rd_kafka_error_string(fenced) : "it committed");
  rd_kafka_error_destroy(fenced);
  SUCCEED(rd_kafka_begin_transaction(second));
  produce(second, 20, 30);
  SUCCEED(rd_kafka_commit_transaction(second, PATIENCE));
  read_numbered(reader, 20, 30);
  leave(reader);
  leave(second);
  rd_kafka_destroy(first);
  return 0;
}
