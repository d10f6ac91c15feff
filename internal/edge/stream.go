package edge

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// Stream writes the parts of a long answer as they come.
type Stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// NewStream returns a stream of a content type.
func NewStream(w http.ResponseWriter, contentType string) *Stream {
	w.Header().Set("Content-Type", contentType)
	return &Stream{w: w, control: http.NewResponseController(w)}
}

// NewEventStream returns a stream of server-sent events.
func NewEventStream(w http.ResponseWriter) *Stream {
	w.Header()["Cache-Control"] = noStore
	return NewStream(w, "text/event-stream")
}

// Event sends a value in JSON as the data of an event.
func (s *Stream) Event(value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write an event as JSON: %w", err)
	}
	return s.Send(fmt.Appendf(nil, "data: %s\n\n", data))
}

// Heartbeat sends a comment, by which a reader knows that the connection works.
func (s *Stream) Heartbeat() error { return s.Send([]byte(": heartbeat\n\n")) }

// Send writes a part and flushes it.
func (s *Stream) Send(part []byte) error {
	if _, err := s.w.Write(part); err != nil {
		return err
	}
	return s.control.Flush()
}
