/* Topics and groups are administered with librdkafka. BROKER in the environment is the
 * server's address; the argument says what to do. kcat, which is made of the same
 * library, tests the rest of it. */
#include <threads.h>

#include "client.h"

/* Each function here asks for one thing and checks that it was done. */
static rd_kafka_t *rk;
static rd_kafka_queue_t *queue;

static void begin(void) {
  rk = client(NULL, NULL);
  queue = rd_kafka_queue_new(rk);
}

static void end(void) {
  rd_kafka_queue_destroy(queue);
  leave(rk);
}

static void check_topics(const rd_kafka_topic_result_t **results, size_t count) {
  CHECK(count == 1, "%zu answers", count);
  CHECK(!rd_kafka_topic_result_error(results[0]), "%s", rd_kafka_topic_result_error_string(results[0]));
}

static void check_groups(const rd_kafka_group_result_t **results, size_t count) {
  CHECK(count == 1, "%zu answers", count);
  const rd_kafka_error_t *error = rd_kafka_group_result_error(results[0]);
  CHECK(!error, "%s", rd_kafka_error_string(error));
}

static void more_partitions(const char *topic, size_t partitions) {
  char problem[512];
  size_t count;
  rd_kafka_NewPartitions_t *wanted = rd_kafka_NewPartitions_new(topic, partitions, problem, sizeof problem);
  CHECK(wanted, "%s", problem);
  rd_kafka_CreatePartitions(rk, &wanted, 1, NULL, queue);
  rd_kafka_event_t *event = answer(queue, RD_KAFKA_EVENT_CREATEPARTITIONS_RESULT);
  const rd_kafka_topic_result_t **results = rd_kafka_CreatePartitions_result_topics(rd_kafka_event_CreatePartitions_result(event), &count);
  check_topics(results, count);
  rd_kafka_event_destroy(event);
  rd_kafka_NewPartitions_destroy(wanted);
}

/* setting checks the value of a topic's setting. */
static void setting(const char *topic, const char *name, const char *want) {
  size_t count, found = 0;
  rd_kafka_ConfigResource_t *wanted = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic);
  rd_kafka_DescribeConfigs(rk, &wanted, 1, NULL, queue);
  rd_kafka_event_t *event = answer(queue, RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT);
  const rd_kafka_ConfigResource_t **resources = rd_kafka_DescribeConfigs_result_resources(rd_kafka_event_DescribeConfigs_result(event), &count);
  CHECK(count == 1 && !rd_kafka_ConfigResource_error(resources[0]), "%s", rd_kafka_ConfigResource_error_string(resources[0]));
  const rd_kafka_ConfigEntry_t **entries = rd_kafka_ConfigResource_configs(resources[0], &count);
  for (size_t i = 0; i < count; i++)
    if (!strcmp(rd_kafka_ConfigEntry_name(entries[i]), name)) {
      const char *value = rd_kafka_ConfigEntry_value(entries[i]);
      CHECK(value && !strcmp(value, want), "%s is %s, want %s", name, value, want);
      found++;
    }
  CHECK(found == 1, "%s is there %zu times", name, found);
  rd_kafka_event_destroy(event);
  rd_kafka_ConfigResource_destroy(wanted);
}

/* change sets a topic's setting, and returns the error. */
static rd_kafka_resp_err_t change(const char *topic, const char *name, const char *value) {
  size_t count;
  rd_kafka_ConfigResource_t *wanted = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic);
  MUST(rd_kafka_ConfigResource_set_config(wanted, name, value));
  rd_kafka_AlterConfigs(rk, &wanted, 1, NULL, queue);
  rd_kafka_event_t *event = answer(queue, RD_KAFKA_EVENT_ALTERCONFIGS_RESULT);
  const rd_kafka_ConfigResource_t **resources = rd_kafka_AlterConfigs_result_resources(rd_kafka_event_AlterConfigs_result(event), &count);
  CHECK(count == 1, "%zu answers", count);
  rd_kafka_resp_err_t error = rd_kafka_ConfigResource_error(resources[0]);
  rd_kafka_event_destroy(event);
  rd_kafka_ConfigResource_destroy(wanted);
  return error;
}

static void delete_records(const char *topic, int64_t before) {
  rd_kafka_topic_partition_list_t *offsets = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(offsets, topic, 0)->offset = before;
  rd_kafka_DeleteRecords_t *wanted = rd_kafka_DeleteRecords_new(offsets);
  rd_kafka_DeleteRecords(rk, &wanted, 1, NULL, queue);
  rd_kafka_event_t *event = answer(queue, RD_KAFKA_EVENT_DELETERECORDS_RESULT);
  const rd_kafka_topic_partition_list_t *results = rd_kafka_DeleteRecords_result_offsets(rd_kafka_event_DeleteRecords_result(event));
  CHECK(results->cnt == 1 && results->elems[0].offset == before, "%" PRId64, results->elems[0].offset);
  MUST(results->elems[0].err);
  rd_kafka_event_destroy(event);
  rd_kafka_DeleteRecords_destroy(wanted);
  rd_kafka_topic_partition_list_destroy(offsets);
}

static void delete_topic(const char *topic) {
  size_t count;
  rd_kafka_DeleteTopic_t *wanted = rd_kafka_DeleteTopic_new(topic);
  rd_kafka_DeleteTopics(rk, &wanted, 1, NULL, queue);
  rd_kafka_event_t *event = answer(queue, RD_KAFKA_EVENT_DELETETOPICS_RESULT);
  const rd_kafka_topic_result_t **results = rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event), &count);
  check_topics(results, count);
  rd_kafka_event_destroy(event);
  rd_kafka_DeleteTopic_destroy(wanted);
}

/* placed reports whether a partition has its replicas, the first of which leads. */
static bool placed(const rd_kafka_metadata_partition_t *partition) {
  return partition->replica_cnt == replicas() && partition->replicas[0] == partition->leader &&
         (replicas() > 1 || (partition->isr_cnt == 1 && partition->isrs[0] == partition->leader));
}

/* partitions returns how many partitions a topic has, 0 if it is not there, once all are placed: on
   a busy machine another replica may lead a new one for a moment. */
static int partitions(const char *topic) {
  for (int tries = 0;; tries++) {
    const struct rd_kafka_metadata *metadata;
    int count = 0, missing = -1;
    MUST(rd_kafka_metadata(rk, 1, NULL, &metadata, PATIENCE));
    for (int i = 0; i < metadata->topic_cnt; i++)
      if (!strcmp(metadata->topics[i].topic, topic)) {
        MUST(metadata->topics[i].err);
        count = metadata->topics[i].partition_cnt;
        for (int p = 0; p < count; p++)
          if (!placed(&metadata->topics[i].partitions[p]))
            missing = p;
      }
    rd_kafka_metadata_destroy(metadata);
    if (missing < 0)
      return count;
    CHECK(tries < PATIENCE / 50, "partition %d is not placed", missing);
    thrd_sleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  }
}

/* Topics are made, described, changed and removed, with records deleted. */
static void tell_topics(void) {
  create("topics", 1, "retention.ms", "3600000", NULL, NULL);
  begin();
  more_partitions("topics", 3);
  CHECK(partitions("topics") == 3, "%d", partitions("topics"));
  setting("topics", "retention.ms", "3600000");
  MUST(change("topics", "retention.ms", "7200000"));
  setting("topics", "retention.ms", "7200000");
  rd_kafka_resp_err_t error = change("topics", "retention.ms", "soon");
  CHECK(error == RD_KAFKA_RESP_ERR_INVALID_CONFIG, "%s", rd_kafka_err2str(error));
  send_numbered("topics", 0, 0, 10, NULL, "gzip", 0);
  delete_records("topics", 4);
  int64_t low, high;
  MUST(rd_kafka_query_watermark_offsets(rk, "topics", 0, &low, &high, PATIENCE));
  CHECK(low == 4 && high == 10, "from %" PRId64 " to %" PRId64, low, high);
  delete_topic("topics");
  CHECK(partitions("topics") == 0, "it is there");
  end();
}

/* listed reports whether a group is listed. */
static bool listed(const char *group) {
  size_t count;
  bool found = false;
  rd_kafka_ListConsumerGroups(rk, NULL, queue);
  rd_kafka_event_t *event = answer(queue, RD_KAFKA_EVENT_LISTCONSUMERGROUPS_RESULT);
  const rd_kafka_ListConsumerGroups_result_t *result = rd_kafka_event_ListConsumerGroups_result(event);
  rd_kafka_ListConsumerGroups_result_errors(result, &count);
  CHECK(count == 0, "%zu errors", count);
  const rd_kafka_ConsumerGroupListing_t **groups = rd_kafka_ListConsumerGroups_result_valid(result, &count);
  for (size_t i = 0; i < count; i++)
    found = found || !strcmp(rd_kafka_ConsumerGroupListing_group_id(groups[i]), group);
  rd_kafka_event_destroy(event);
  return found;
}

static void described(const char *group, rd_kafka_consumer_group_state_t state, size_t members) {
  size_t count;
  rd_kafka_DescribeConsumerGroups(rk, &group, 1, NULL, queue);
  rd_kafka_event_t *event = answer(queue, RD_KAFKA_EVENT_DESCRIBECONSUMERGROUPS_RESULT);
  const rd_kafka_ConsumerGroupDescription_t **groups = rd_kafka_DescribeConsumerGroups_result_groups(rd_kafka_event_DescribeConsumerGroups_result(event), &count);
  CHECK(count == 1 && !rd_kafka_ConsumerGroupDescription_error(groups[0]), "%s", rd_kafka_error_string(rd_kafka_ConsumerGroupDescription_error(groups[0])));
  CHECK(rd_kafka_ConsumerGroupDescription_state(groups[0]) == state, "state %s", rd_kafka_consumer_group_state_name(rd_kafka_ConsumerGroupDescription_state(groups[0])));
  CHECK(rd_kafka_ConsumerGroupDescription_member_count(groups[0]) == members, "%zu members", rd_kafka_ConsumerGroupDescription_member_count(groups[0]));
  rd_kafka_event_destroy(event);
}

static int64_t committed(const char *group, const char *topic) {
  size_t count;
  rd_kafka_ListConsumerGroupOffsets_t *wanted = rd_kafka_ListConsumerGroupOffsets_new(group, NULL);
  rd_kafka_ListConsumerGroupOffsets(rk, &wanted, 1, NULL, queue);
  rd_kafka_event_t *event = answer(queue, RD_KAFKA_EVENT_LISTCONSUMERGROUPOFFSETS_RESULT);
  const rd_kafka_group_result_t **results = rd_kafka_ListConsumerGroupOffsets_result_groups(rd_kafka_event_ListConsumerGroupOffsets_result(event), &count);
  check_groups(results, count);
  const rd_kafka_topic_partition_list_t *offsets = rd_kafka_group_result_partitions(results[0]);
  const rd_kafka_topic_partition_t *place = rd_kafka_topic_partition_list_find((rd_kafka_topic_partition_list_t *)offsets, topic, 0);
  int64_t offset = place ? place->offset : -1;
  rd_kafka_event_destroy(event);
  rd_kafka_ListConsumerGroupOffsets_destroy(wanted);
  return offset;
}

static void move(const char *group, const char *topic, int64_t offset) {
  size_t count;
  rd_kafka_topic_partition_list_t *offsets = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(offsets, topic, 0)->offset = offset;
  rd_kafka_AlterConsumerGroupOffsets_t *wanted = rd_kafka_AlterConsumerGroupOffsets_new(group, offsets);
  rd_kafka_AlterConsumerGroupOffsets(rk, &wanted, 1, NULL, queue);
  rd_kafka_event_t *event = answer(queue, RD_KAFKA_EVENT_ALTERCONSUMERGROUPOFFSETS_RESULT);
  const rd_kafka_group_result_t **results = rd_kafka_AlterConsumerGroupOffsets_result_groups(rd_kafka_event_AlterConsumerGroupOffsets_result(event), &count);
  check_groups(results, count);
  MUST(rd_kafka_group_result_partitions(results[0])->elems[0].err);
  rd_kafka_event_destroy(event);
  rd_kafka_AlterConsumerGroupOffsets_destroy(wanted);
  rd_kafka_topic_partition_list_destroy(offsets);
}

static void forget(const char *group, const char *topic) {
  size_t count;
  rd_kafka_topic_partition_list_t *places = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(places, topic, 0);
  rd_kafka_DeleteConsumerGroupOffsets_t *wanted = rd_kafka_DeleteConsumerGroupOffsets_new(group, places);
  rd_kafka_DeleteConsumerGroupOffsets(rk, &wanted, 1, NULL, queue);
  rd_kafka_event_t *event = answer(queue, RD_KAFKA_EVENT_DELETECONSUMERGROUPOFFSETS_RESULT);
  const rd_kafka_group_result_t **results = rd_kafka_DeleteConsumerGroupOffsets_result_groups(rd_kafka_event_DeleteConsumerGroupOffsets_result(event), &count);
  check_groups(results, count);
  MUST(rd_kafka_group_result_partitions(results[0])->elems[0].err);
  rd_kafka_event_destroy(event);
  rd_kafka_DeleteConsumerGroupOffsets_destroy(wanted);
  rd_kafka_topic_partition_list_destroy(places);
}

static void delete_group(const char *group) {
  size_t count;
  rd_kafka_DeleteGroup_t *wanted = rd_kafka_DeleteGroup_new(group);
  rd_kafka_DeleteGroups(rk, &wanted, 1, NULL, queue);
  rd_kafka_event_t *event = answer(queue, RD_KAFKA_EVENT_DELETEGROUPS_RESULT);
  const rd_kafka_group_result_t **results = rd_kafka_DeleteGroups_result_groups(rd_kafka_event_DeleteGroups_result(event), &count);
  check_groups(results, count);
  rd_kafka_event_destroy(event);
  rd_kafka_DeleteGroup_destroy(wanted);
}

/* Groups are listed, described, moved and removed. */
static void tell_groups(void) {
  create("groups", 1, NULL, NULL, NULL, NULL);
  send_numbered("groups", 0, 0, 10, NULL, "none", 0);
  begin();
  rd_kafka_t *member = subscribed("groups", "groups");
  read_numbered(member, 0, 10);
  described("groups", RD_KAFKA_CONSUMER_GROUP_STATE_STABLE, 1);
  MUST(rd_kafka_commit(member, NULL, 0));
  leave(member);
  CHECK(listed("groups"), "it is not listed");
  described("groups", RD_KAFKA_CONSUMER_GROUP_STATE_EMPTY, 0);
  CHECK(committed("groups", "groups") == 10, "%" PRId64, committed("groups", "groups"));
  move("groups", "groups", 3);
  CHECK(committed("groups", "groups") == 3, "%" PRId64, committed("groups", "groups"));
  forget("groups", "groups");
  CHECK(committed("groups", "groups") == -1, "%" PRId64, committed("groups", "groups"));
  move("groups", "groups", 5);
  delete_group("groups");
  CHECK(!listed("groups"), "it is listed");
  end();
}

int main(int argc, char *argv[]) {
  if (argc == 2 && !strcmp(argv[1], "topics"))
    tell_topics();
  else if (argc == 2 && !strcmp(argv[1], "groups"))
    tell_groups();
  else
    FAIL("want one argument: topics or groups");
  return 0;
}
