/* Access lists are managed with librdkafka. BROKER in the environment is the address of a server
 * with accounts and TLS, CERTIFICATES the folder with ca.pem, SECRET its admin token, CLERK the password of the user clerk, who has no right. */
#include "client.h"

/* An account asks with a connection of its own. */
struct account {
  rd_kafka_t *rk;
  rd_kafka_queue_t *queue;
};

static struct account begin(const char *mechanism, const char *user, const char *password) {
  char ca[512];
  snprintf(ca, sizeof ca, "%s/ca.pem", getenv("CERTIFICATES"));
  const char *settings[] = {"security.protocol", "SASL_SSL", "ssl.ca.location", ca, "sasl.mechanism", mechanism, "sasl.username", user, "sasl.password", password, NULL};
  rd_kafka_t *rk = client(NULL, settings);
  return (struct account){rk, rd_kafka_queue_new(rk)};
}

static void end(struct account of) {
  rd_kafka_queue_destroy(of.queue);
  leave(of.rk);
}

/* allow lets the clerk write to topics with a prefix, and returns the error. */
static rd_kafka_resp_err_t allow(struct account of, const char *prefix) {
  char problem[512];
  size_t count;
  rd_kafka_AclBinding_t *wanted =
      rd_kafka_AclBinding_new(RD_KAFKA_RESOURCE_TOPIC, prefix, RD_KAFKA_RESOURCE_PATTERN_PREFIXED, "User:clerk", "*", RD_KAFKA_ACL_OPERATION_WRITE,
                              RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW, problem, sizeof problem);
  CHECK(wanted, "%s", problem);
  rd_kafka_CreateAcls(of.rk, &wanted, 1, NULL, of.queue);
  rd_kafka_event_t *event = answer(of.queue, RD_KAFKA_EVENT_CREATEACLS_RESULT);
  const rd_kafka_acl_result_t **results = rd_kafka_CreateAcls_result_acls(rd_kafka_event_CreateAcls_result(event), &count);
  CHECK(count == 1, "%zu answers", count);
  const rd_kafka_error_t *error = rd_kafka_acl_result_error(results[0]);
  rd_kafka_resp_err_t code = error ? rd_kafka_error_code(error) : RD_KAFKA_RESP_ERR_NO_ERROR;
  rd_kafka_event_destroy(event);
  rd_kafka_AclBinding_destroy(wanted);
  return code;
}

/* every returns a filter for all access lists of the clerk. */
static rd_kafka_AclBindingFilter_t *every(void) {
  char problem[512];
  rd_kafka_AclBindingFilter_t *filter = rd_kafka_AclBindingFilter_new(RD_KAFKA_RESOURCE_ANY, NULL, RD_KAFKA_RESOURCE_PATTERN_ANY, "User:clerk", NULL,
                                                                      RD_KAFKA_ACL_OPERATION_ANY, RD_KAFKA_ACL_PERMISSION_TYPE_ANY, problem, sizeof problem);
  CHECK(filter, "%s", problem);
  return filter;
}

/* described checks that there are so many access lists, each of which lets the clerk write to topics with the prefix. */
static void described(struct account of, const char *prefix, size_t want) {
  size_t count;
  rd_kafka_AclBindingFilter_t *filter = every();
  rd_kafka_DescribeAcls(of.rk, filter, NULL, of.queue);
  rd_kafka_event_t *event = answer(of.queue, RD_KAFKA_EVENT_DESCRIBEACLS_RESULT);
  const rd_kafka_AclBinding_t **acls = rd_kafka_DescribeAcls_result_acls(rd_kafka_event_DescribeAcls_result(event), &count);
  CHECK(count == want, "%zu access lists, want %zu", count, want);
  for (size_t i = 0; i < count; i++)
    CHECK(!strcmp(rd_kafka_AclBinding_name(acls[i]), prefix) && rd_kafka_AclBinding_resource_pattern_type(acls[i]) == RD_KAFKA_RESOURCE_PATTERN_PREFIXED &&
              rd_kafka_AclBinding_operation(acls[i]) == RD_KAFKA_ACL_OPERATION_WRITE,
          "%s", rd_kafka_AclBinding_name(acls[i]));
  rd_kafka_event_destroy(event);
  rd_kafka_AclBinding_destroy(filter);
}

/* forbid deletes all access lists of the clerk, checks how many there were, and returns the error. */
static rd_kafka_resp_err_t forbid(struct account of, size_t want) {
  size_t count;
  rd_kafka_AclBindingFilter_t *filter = every();
  rd_kafka_DeleteAcls(of.rk, &filter, 1, NULL, of.queue);
  rd_kafka_event_t *event = answer(of.queue, RD_KAFKA_EVENT_DELETEACLS_RESULT);
  const rd_kafka_DeleteAcls_result_response_t **results = rd_kafka_DeleteAcls_result_responses(rd_kafka_event_DeleteAcls_result(event), &count);
  CHECK(count == 1, "%zu answers", count);
  const rd_kafka_error_t *error = rd_kafka_DeleteAcls_result_response_error(results[0]);
  rd_kafka_resp_err_t code = error ? rd_kafka_error_code(error) : RD_KAFKA_RESP_ERR_NO_ERROR;
  rd_kafka_DeleteAcls_result_response_matching_acls(results[0], &count);
  CHECK(count == want, "%zu access lists, want %zu", count, want);
  rd_kafka_event_destroy(event);
  rd_kafka_AclBinding_destroy(filter);
  return code;
}

int main(void) {
  struct account admin = begin("PLAIN", "admin", getenv("SECRET")), clerk = begin("SCRAM-SHA-256", "clerk", getenv("CLERK"));
  rd_kafka_resp_err_t refused = allow(clerk, "librdkafka");
  CHECK(refused == RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, "%s", rd_kafka_err2str(refused));
  MUST(allow(admin, "librdkafka"));
  described(admin, "librdkafka", 1);
  refused = forbid(clerk, 0);
  CHECK(refused == RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, "%s", rd_kafka_err2str(refused));
  MUST(forbid(admin, 1));
  described(admin, "librdkafka", 0);
  end(admin);
  end(clerk);
  return 0;
}
