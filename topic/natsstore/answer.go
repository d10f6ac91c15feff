package natsstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sluice-project/sluice/topic"
)

// parseAnswerSubject splits "<token>.<number>".
func parseAnswerSubject(subject string) (token, number uint64, ok bool) {
	first, second, found := strings.Cut(subject, ".")
	token, err1 := strconv.ParseUint(first, 10, 64)
	number, err2 := strconv.ParseUint(second, 10, 64)
	return token, number, found && err1 == nil && err2 == nil
}

// statusOf returns the status of a message without a body, such as "404".
func statusOf(message *nats.Msg) string { return message.Header.Get("Status") }

// parseAnswer returns the sequence of a write, or one of topic's errors, wrapped, if it
// was not written.
func parseAnswer(message *nats.Msg) (uint64, error) {
	if len(message.Data) == 0 && message.Header != nil {
		if status := statusOf(message); status == "503" {
			return 0, topic.ErrNoLog
		}
	}
	// Nearly every answer is {"stream":"…","seq":17}. Stream names need no escapes in
	// JSON.
	data := message.Data
	if at := bytes.Index(data, []byte(`"seq":`)); at >= 0 && !bytes.Contains(data, []byte(`"error"`)) {
		rest := bytes.TrimLeft(data[at+len(`"seq":`):], " ")
		if end := bytes.IndexAny(rest, ",}"); end > 0 {
			if sequence, err := strconv.ParseUint(string(rest[:end]), 10, 64); err == nil && sequence > 0 {
				return sequence, nil
			}
		}
	}
	var answer struct {
		Error struct {
			ErrCode     int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(data, &answer); err != nil || answer.Error.ErrCode == 0 {
		return 0, fmt.Errorf("%w: the engine answered %q", topic.ErrUncertain, data[:min(len(data), 200)])
	}
	sentinel := sentinelOf(answer.Error.ErrCode)
	if answer.Error.Description == server.ErrStoreClosed.Error() {
		sentinel = topic.ErrUncertain
	}
	return 0, fmt.Errorf("%w: the engine says: %s", sentinel, answer.Error.Description)
}

// sentinelOf returns topic's error for an error code of the engine. Other codes are
// ErrUncertain: the caller reads the log.
func sentinelOf(code int) error {
	switch server.ErrorIdentifier(code) {
	case server.JSStreamWrongLastSequenceErrF, server.JSStreamWrongLastSequenceConstantErr, server.JSStreamTooManyRequests:
		// With too many appends in flight the engine dropped this one, so later ones are fenced.
		return topic.ErrFenced
	case server.JSInsufficientResourcesErr, server.JSAccountResourcesExceededErr, server.JSStorageResourcesExceededErr,
		server.JSStreamStoreFailedF:
		return topic.ErrFull
	case server.JSStreamNotFoundErr:
		return topic.ErrNoLog
	}
	return topic.ErrUncertain
}

// isFenced reports whether a write was refused for the sequence that it expected.
func isFenced(err error) bool { return errors.Is(err, topic.ErrFenced) }
