package kafkatest

import (
	"reflect"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Names are what a request names. Empty ones are left out.
type Names struct {
	Topic, Group, Transaction string
	TopicID                   [16]byte
}

// Request returns a request of a kind that names one of each resource that the kind has fields for, and
// partition 0 of topics. All else is empty: the request is not always one that a server can carry out.
func Request(key, version int16, names Names) kmsg.Request {
	r := kmsg.RequestForKey(key)
	names.fill(reflect.ValueOf(r).Elem())
	r.SetVersion(version)
	return r
}

// described are the arrays of structures that name resources.
var described = map[string]bool{"Topics": true, "Groups": true, "Resources": true, "Partitions": true, "Deletions": true, "Creations": true, "Filters": true, "Entries": true}

func (n Names) fill(value reflect.Value) {
	for i := range value.NumField() {
		field, name := value.Field(i), strings.TrimSuffix(value.Type().Field(i).Name, "s")
		switch name {
		case "Topic", "TopicName", "SubscribedTopicName", "ResourceName":
			set(field, n.Topic)
		case "Group", "GroupID", "CoordinatorKey":
			set(field, n.Group)
		case "TransactionalID", "TransactionID":
			set(field, n.Transaction)
		case "TopicID":
			if field.Type() == reflect.TypeOf(n.TopicID) {
				field.Set(reflect.ValueOf(n.TopicID))
			}
		case "Ack": // without an acknowledgement there is no answer
			field.SetInt(-1)
		case "ResourceType":
			field.SetInt(int64(kmsg.ConfigResourceTypeTopic)) // of access lists too
		}
		if described[value.Type().Field(i).Name] && field.Kind() == reflect.Slice {
			switch element := reflect.New(field.Type().Elem()).Elem(); element.Kind() {
			case reflect.Struct:
				n.fill(element)
				field.Set(reflect.Append(field, element))
			case reflect.Int32:
				field.Set(reflect.Append(field, element))
			}
		}
	}
}

// set sets a field for one name or for several.
func set(field reflect.Value, name string) {
	switch {
	case name == "":
	case field.Kind() == reflect.String:
		field.SetString(name)
	case field.Type() == reflect.TypeFor[*string]():
		field.Set(reflect.ValueOf(&name))
	case field.Type() == reflect.TypeFor[[]string]():
		field.Set(reflect.ValueOf([]string{name}))
	}
}

// Codes returns the codes of all errors in an answer.
func Codes(response kmsg.Response) map[int16]bool {
	codes := map[int16]bool{}
	collect(reflect.ValueOf(response).Elem(), codes)
	return codes
}

func collect(value reflect.Value, codes map[int16]bool) {
	for i := range value.NumField() {
		field := value.Field(i)
		switch {
		case value.Type().Field(i).Name == "ErrorCode":
			if field.Int() != 0 {
				codes[int16(field.Int())] = true
			}
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct:
			for j := range field.Len() {
				collect(field.Index(j), codes)
			}
		}
	}
}
