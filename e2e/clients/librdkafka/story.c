/* The story of librdkafka, told to a running server: BROKER in the environment
 * is its address, the argument which part to tell. Each part has topics and
 * groups of its own. */
#include "story.h"

#define START INT64_C(1700000000000)

/* A record of each kind: empty strings are empty, NULL is null. */
static const struct {
  const char *key, *value;
  bool headers;
} kinds[] = {{"key", "value", true}, {"deleted", NULL, false}, {NULL, "", false}, {"", "no key", false}};

static void check_bytes(const char *what, const void *got, size_t length, const char *want) {
  CHECK((got == NULL) == (want == NULL), "%s", what);
  if (want)
    CHECK(length == strlen(want) && !memcmp(got, want, length), "%s \"%.*s\", want \"%s\"", what, (int)length, (char *)got, want);
}

static void check_headers(rd_kafka_message_t *message, bool wanted) {
  rd_kafka_headers_t *headers;
  rd_kafka_resp_err_t err = rd_kafka_message_headers(message, &headers);
  if (!wanted) {
    CHECK(err == RD_KAFKA_RESP_ERR__NOENT, "%s", rd_kafka_err2str(err));
    return;
  }
  MUST(err);
  const char *want[][2] = {{"tag", "paid"}, {"tag", NULL}, {"empty", ""}};
  CHECK(rd_kafka_header_cnt(headers) == 3, "%zu headers", rd_kafka_header_cnt(headers));
  for (size_t i = 0; i < 3; i++) {
    const char *name;
    const void *value;
    size_t length;
    MUST(rd_kafka_header_get_all(headers, i, &name, &value, &length));
    CHECK(!strcmp(name, want[i][0]), "header %s", name);
    check_bytes("header", value, length, want[i][1]);
  }
}

/* What librdkafka sends it gets back, through each codec. */
void tell_records(void) {
  const char *codecs[] = {"none", "gzip", "snappy", "lz4", "zstd"};
  create("records", 1, NULL, NULL, NULL, NULL);
  for (int codec = 0; codec < 5; codec++) {
    const char *settings[] = {"compression.codec", codecs[codec], NULL};
    rd_kafka_t *producer = client(NULL, settings);
    for (int kind = 0; kind < 4; kind++) {
      rd_kafka_headers_t *headers = rd_kafka_headers_new(3);
      if (kinds[kind].headers) {
        MUST(rd_kafka_header_add(headers, "tag", -1, "paid", -1));
        MUST(rd_kafka_header_add(headers, "tag", -1, NULL, 0));
        MUST(rd_kafka_header_add(headers, "empty", -1, "", 0));
      }
      const char *key = kinds[kind].key, *value = kinds[kind].value;
      MUST(rd_kafka_producev(producer, RD_KAFKA_V_TOPIC("records"), RD_KAFKA_V_PARTITION(0), RD_KAFKA_V_KEY(key, key ? strlen(key) : 0),
                             RD_KAFKA_V_VALUE((void *)value, value ? strlen(value) : 0), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                             RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_TIMESTAMP(START + codec), RD_KAFKA_V_END));
    }
    MUST(rd_kafka_flush(producer, PATIENCE));
    leave(producer);
  }
  rd_kafka_t *consumer = subscribed("records", "records");
  for (int i = 0; i < 20; i++) {
    rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, PATIENCE);
    CHECK(message && !message->err, "record %d: %s", i, message ? rd_kafka_message_errstr(message) : "did not come");
    rd_kafka_timestamp_type_t type;
    int64_t timestamp = rd_kafka_message_timestamp(message, &type);
    CHECK(message->offset == i && timestamp == START + i / 4, "offset %" PRId64 " of %" PRId64, message->offset, timestamp);
    check_bytes("key", message->key, message->key_len, kinds[i % 4].key);
    check_bytes("value", message->payload, message->len, kinds[i % 4].value);
    check_headers(message, kinds[i % 4].headers);
    rd_kafka_message_destroy(message);
  }
  quiet(consumer);
  leave(consumer);
}

/* commit_at commits an offset of partition 0. */
static void commit_at(rd_kafka_t *consumer, const char *topic, int64_t offset) {
  rd_kafka_topic_partition_list_t *offsets = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(offsets, topic, 0)->offset = offset;
  MUST(rd_kafka_commit(consumer, offsets, 0));
  rd_kafka_topic_partition_list_destroy(offsets);
}

static int owned(rd_kafka_t *consumer) {
  rd_kafka_topic_partition_list_t *partitions;
  MUST(rd_kafka_assignment(consumer, &partitions));
  int count = partitions->cnt;
  rd_kafka_topic_partition_list_destroy(partitions);
  return count;
}

/* until_owned polls two members, of which the second may have left, until they
 * own so many partitions, and returns how many records came meanwhile. */
static int until_owned(rd_kafka_t *a, int wanted_a, rd_kafka_t *b, int wanted_b) {
  int records = 0;
  for (int waited = 0; owned(a) != wanted_a || (b && owned(b) != wanted_b); waited += 20) {
    CHECK(waited < PATIENCE, "the first owns %d, the second %d", owned(a), b ? owned(b) : 0);
    rd_kafka_t *members[] = {a, b};
    for (int i = 0; i < 2 && members[i]; i++) {
      rd_kafka_message_t *message = rd_kafka_consumer_poll(members[i], 20);
      if (message)
        records += !message->err, rd_kafka_message_destroy(message);
    }
  }
  return records;
}

/* A group reads on where it committed; a second member takes half and gives it
 * back. */
void tell_group(void) {
  create("group", 4, NULL, NULL, NULL, NULL);
  send_numbered("group", 0, 0, 20, NULL, "lz4", 0);
  rd_kafka_t *first = subscribed("group", "group");
  read_numbered(first, 0, 20);
  commit_at(first, "group", 12);
  leave(first);
  rd_kafka_t *second = subscribed("group", "group");
  read_numbered(second, 12, 20);
  commit_at(second, "group", 20);
  rd_kafka_t *third = subscribed("group", "group");
  CHECK(until_owned(second, 2, third, 2) == 0, "records came twice");
  for (int partition = 0; partition < 4; partition++)
    send_numbered("group", partition, 20, 21, NULL, "none", 0);
  read_numbered(second, 20, 21);
  read_numbered(third, 20, 21);
  read_numbered(second, 20, 21);
  read_numbered(third, 20, 21);
  MUST(rd_kafka_commit(third, NULL, 0));
  MUST(rd_kafka_commit(second, NULL, 0));
  leave(third);
  CHECK(until_owned(second, 4, NULL, 0) == 0, "records came twice");
  leave(second);
}

static int64_t offset_of_time(rd_kafka_t *rk, const char *topic, int64_t time) {
  rd_kafka_topic_partition_list_t *times = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(times, topic, 0)->offset = time;
  MUST(rd_kafka_offsets_for_times(rk, times, PATIENCE));
  int64_t offset = times->elems[0].offset;
  MUST(times->elems[0].err);
  rd_kafka_topic_partition_list_destroy(times);
  return offset;
}

/* Seeking goes to an offset, and to the first record of a time. */
void tell_seek(void) {
  create("seek", 1, NULL, NULL, NULL, NULL);
  send_numbered("seek", 0, 0, 20, NULL, "zstd", START);
  rd_kafka_t *consumer = subscribed("seek", "seek");
  read_numbered(consumer, 0, 20);
  int64_t low, high;
  MUST(rd_kafka_query_watermark_offsets(consumer, "seek", 0, &low, &high, PATIENCE));
  CHECK(low == 0 && high == 20, "from %" PRId64 " to %" PRId64, low, high);
  CHECK(offset_of_time(consumer, "seek", START + 5000) == 5, "a time");
  CHECK(offset_of_time(consumer, "seek", START + 5001) == 6, "between two times");
  CHECK(offset_of_time(consumer, "seek", START + 60000) == RD_KAFKA_OFFSET_END, "after all");
  for (int from = 13; from > 0; from -= 7) {
    rd_kafka_topic_partition_list_t *place = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(place, "seek", 0)->offset = from;
    rd_kafka_error_t *error = rd_kafka_seek_partitions(consumer, place, PATIENCE);
    CHECK(!error, "%s", rd_kafka_error_string(error));
    rd_kafka_topic_partition_list_destroy(place);
    read_numbered(consumer, from, 20);
  }
  quiet(consumer);
  leave(consumer);
}

/* A view is read over 20,000 hidden records, and on after a hidden end. */
void tell_view(void) {
  create("orders", 1, NULL, NULL, NULL, NULL);
  create("paid", -1, "sluice.view.of", "orders", "sluice.view.where", "headers.tag == \"paid\"");
  send_numbered("orders", 0, 0, 10, "paid", "lz4", 0);
  send_numbered("orders", 0, 10, 20010, "open", "lz4", 0);
  send_numbered("orders", 0, 20010, 20020, "paid", "lz4", 0);
  send_numbered("orders", 0, 20020, 40020, "open", "lz4", 0);
  rd_kafka_t *first = subscribed("view", "paid");
  CHECK(read_numbered(first, 0, 10) == 9, "offset before the gap");
  CHECK(read_numbered(first, 20010, 20020) == 20019, "offset after the gap");
  quiet(first);
  commit_at(first, "paid", 10);
  leave(first);
  rd_kafka_t *second = subscribed("view", "paid");
  read_numbered(second, 20010, 20020);
  quiet(second);
  send_numbered("orders", 0, 40020, 40021, "paid", "none", 0);
  read_numbered(second, 40020, 40021);
  leave(second);
}

/* What is sent with a delay comes after what is sent later, without. */
void tell_delays(void) {
  create("reminders", 1, "sluice.delay.enable", "true", NULL, NULL);
  rd_kafka_t *producer = client(NULL, NULL);
  rd_kafka_headers_t *headers = rd_kafka_headers_new(2);
  MUST(rd_kafka_header_add(headers, "sluice-delay", -1, "1s", -1));
  MUST(rd_kafka_header_add(headers, "sluice-id", -1, "a", -1));
  MUST(rd_kafka_producev(producer, RD_KAFKA_V_TOPIC("reminders"), RD_KAFKA_V_VALUE("value 1", 7), RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END));
  MUST(rd_kafka_producev(producer, RD_KAFKA_V_TOPIC("reminders"), RD_KAFKA_V_VALUE("value 0", 7), RD_KAFKA_V_END));
  MUST(rd_kafka_flush(producer, PATIENCE));
  leave(producer);
  rd_kafka_t *consumer = subscribed("reminders", "reminders");
  read_numbered(consumer, 0, 2);
  quiet(consumer);
  leave(consumer);
}

int main(int argc, char *argv[]) {
  const struct {
    const char *name;
    void (*tell)(void);
  } parts[] = {{"records", tell_records}, {"group", tell_group}, {"seek", tell_seek}, {"view", tell_view}, {"topics", tell_topics}, {"groups", tell_groups}, {"delays", tell_delays}};
  for (size_t i = 0; argc == 2 && i < sizeof parts / sizeof *parts; i++)
    if (!strcmp(argv[1], parts[i].name)) {
      parts[i].tell();
      return 0;
    }
  FAIL("want one argument: records, group, seek, view, topics, groups or delays");
}
