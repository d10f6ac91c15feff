/* A client of librdkafka that ends the program at the first unexpected answer. */
#ifndef CLIENT_H
#define CLIENT_H

#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long anything may take, in milliseconds. */
#define PATIENCE 150000

#define FAIL(...)                                                              \
  do {                                                                         \
    fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                            \
    fprintf(stderr, __VA_ARGS__);                                              \
    fputc('\n', stderr);                                                       \
    exit(1);                                                                   \
  } while (0)
#define CHECK(condition, ...)                                                  \
  do {                                                                         \
    if (!(condition))                                                          \
      FAIL(#condition ": " __VA_ARGS__);                                       \
  } while (0)
#define MUST(call)                                                             \
  do {                                                                         \
    rd_kafka_resp_err_t err_ = (call);                                         \
    if (err_)                                                                  \
      FAIL(#call ": %s", rd_kafka_err2str(err_));                              \
  } while (0)

/* replicas is how many nodes there are, which all keep all: REPLICAS. */
int replicas(void);

/* client returns a producer, or a consumer if there is a group. Settings are
 * names and values, ended by NULL. */
rd_kafka_t *client(const char *group, const char *settings[]);

/* send produces "value from" to "value to-1" to a partition, the record i at the
 * time start + i seconds (or now, if start is 0), with a header if there is a
 * tag. */
void send_numbered(const char *topic, int partition, int from, int to,
                   const char *tag, const char *codec, int64_t start);

/* read_numbered reads exactly "value from" to "value to-1", and returns the
 * offset of the last. */
int64_t read_numbered(rd_kafka_t *consumer, int from, int to);

/* subscribed returns a member of a group. */
rd_kafka_t *subscribed(const char *group, const char *topic);

/* leave ends a client. */
void leave(rd_kafka_t *rk);

/* answer returns the answer to a request of administration, without an error. */
rd_kafka_event_t *answer(rd_kafka_queue_t *queue, rd_kafka_event_type_t type);

/* create makes a topic, with up to two settings. */
void create(const char *topic, int partitions, const char *name1,
            const char *value1, const char *name2, const char *value2);

#endif
